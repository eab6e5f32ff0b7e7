"""What is right: the call on whole tensors, on one device, with its gradients."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from sweep.cases import Sample

# The values of these are whatever the memory held.
_UNSPECIFIED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
# These are written in Python and draw tensors of their own.
_DRAW_PLAIN = {
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "pca_lowrank",
    "svd_lowrank",
}

_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
_RUNS_OF_RANDOM = 40


class NotMeasurable(Exception):
    """Why a sample says nothing about sharding."""


@dataclass
class Results:
    """What a call gives, as flat lists. `values` holds the outputs, then the inputs that the call wrote to."""

    values: list[Any]
    differentiable: list[int]  # those of the outputs that have a gradient
    grads: list[torch.Tensor | None]  # one per input that requires one
    written: list[int]  # the inputs that the call wrote to


@dataclass
class Dense:
    """The right results of a sample, computed once for all its cases."""

    sample: Sample
    results: Results
    random: bool  # it draws numbers
    draws_plain: bool  # it draws them as a plain tensor; ranks that are threads draw different ones
    unspecified: bool  # its values mean nothing

    @functools.cached_property
    def wider(self) -> Results | None:
        """The same in float64, from the same inputs; None where torch cannot."""
        widened = [t.to(_WIDER.get(t.dtype, t.dtype)) for t in fresh(self.sample)]
        tensors = [w.detach().requires_grad_(t.requires_grad) for w, t in zip(widened, self.sample.tensors)]
        try:
            results = _run(self.sample, tensors)
        except Exception:
            return None
        same = [_shape(a) == _shape(b) for a, b in zip(results.values, self.results.values)]
        return results if all(same) and len(results.values) == len(self.results.values) else None

    @functools.cached_property
    def statistics(self) -> list[tuple[torch.Tensor, torch.Tensor] | None]:
        """Of a random operator, for each value: the mean and the deviation over many runs of `moments`."""
        runs = []
        for seed in range(_RUNS_OF_RANDOM):
            torch.manual_seed(seed)
            runs.append([moments(value) for value in _run(self.sample, fresh(self.sample)).values])
        columns = [torch.stack(column) if column[0] is not None else None for column in zip(*runs)]
        return [(column.mean(0), column.std(0)) if column is not None else None for column in columns]


def solve(sample: Sample) -> Dense:
    """The right results. Throws NotMeasurable where there is nothing to compare."""
    if not sample.tensors:
        raise NotMeasurable("no tensor among the inputs")
    if any(tensor.layout != torch.strided for tensor in sample.tensors):
        raise NotMeasurable("a sparse input")
    torch.manual_seed(1)
    generator = torch.get_rng_state()
    try:
        results = _run(sample, fresh(sample))
    except Exception as error:
        raise NotMeasurable(f"the dense call fails: {type(error).__name__}: {str(error).splitlines()[0:1]}") from error
    tensors = [value for value in results.values if isinstance(value, torch.Tensor)]
    if any(tensor.layout != torch.strided for tensor in tensors):
        raise NotMeasurable("a sparse result")
    if any(tensor.is_quantized for tensor in tensors):
        raise NotMeasurable("a quantized result")
    return Dense(
        sample,
        results,
        random=not torch.equal(generator, torch.get_rng_state()),
        draws_plain=sample.op.name in _DRAW_PLAIN,
        unspecified=sample.op.name in _UNSPECIFIED,
    )


def fresh(sample: Sample) -> list[torch.Tensor]:
    """Copies of the inputs, as leaves for autograd: a call may write to them."""
    with torch.no_grad():
        copies = [tensor.detach().clone().resolve_conj().resolve_neg() for tensor in sample.tensors]
    return [copy.requires_grad_(tensor.requires_grad) for copy, tensor in zip(copies, sample.tensors)]


def outputs_of(sample: Sample, tensors: list[torch.Tensor]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytree.tree_leaves(sample.call(tensors))


def gradients(
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True))


def cotangent(number: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """The gradient that flows into output `number`: random, and always the same."""
    generator = torch.Generator().manual_seed(number + 1)
    drawn = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(tuple(shape), generator=generator, dtype=drawn).to(dtype)


def moments(value: Any) -> torch.Tensor | None:
    """Mean and deviation of the finite elements, on a logarithmic scale: a Cauchy distribution has neither otherwise.

    None for what is no tensor, or empty.
    """
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return None
    numbers = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    numbers = numbers.detach().to(torch.float64).flatten()
    numbers = numbers[torch.isfinite(numbers)]
    if numbers.numel() == 0:
        return None
    numbers = numbers.sign() * numbers.abs().log1p()
    return torch.stack([numbers.mean(), numbers.std(correction=0)])


def _run(sample: Sample, tensors: list[torch.Tensor]) -> Results:
    before = [tensor.detach().clone() for tensor in tensors]
    outputs = outputs_of(sample, tensors)
    written = [i for i, (old, new) in enumerate(zip(before, tensors)) if not _equal(old, new.detach())]
    differentiable = [i for i, out in enumerate(outputs) if isinstance(out, torch.Tensor) and out.requires_grad]
    grads: list[torch.Tensor | None] = []
    if differentiable:
        try:
            chosen = [outputs[i] for i in differentiable]
            cotangents = [cotangent(i, outputs[i].shape, outputs[i].dtype) for i in differentiable]
            grads = gradients(chosen, tensors, cotangents)
        except Exception:  # the operator has no gradient here, or none that is unique: forwards alone is compared
            differentiable = []
    values = [out.detach().clone() if isinstance(out, torch.Tensor) else out for out in outputs]
    return Results(values + [tensors[i].detach().clone() for i in written], differentiable, grads, written)


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else type(value)


def _equal(a: Any, b: Any) -> bool:
    """Bit for bit, but for NaNs, which are all alike."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b or a != a)
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.layout != torch.strided:
        return True
    return same_values(a, b)


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype == torch.complex32:  # torch cannot compare these
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
