"""What is tried: operators, their samples, and the names by which a case can be asked for again."""

import contextlib
import dataclasses
import functools
import itertools
import random
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy
import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from sweep.placements import MESHES

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}

SAMPLES_PER_OPERATOR = 6
_EVEN_SAMPLES = 2  # of those
_LONGEST_LIST = 300  # of samples; a few operators have thousands

# torch's samples have dims of 3, 5, 10 and 20, most of which four ranks cannot share evenly. These sizes, set in their
# place, make the other half of the samples.
_SIZES = {"XS": 3, "S": 5, "M": 10}
_EVEN_SIZES = {"XS": 4, "S": 8, "M": 12}
_FIXED_SIZES = {"_segment_reduce"}  # their samples hold numbers of rows that fit torch's sizes alone


@dataclass(frozen=True)
class CaseId:
    operator: str
    dtype: str
    sample: str  # a number in torch's list; "even3": the same list with sizes that four ranks share evenly
    placement: str
    mesh: str

    def __str__(self) -> str:
        return ":".join(dataclasses.astuple(self))

    @staticmethod
    def parse(text: str) -> "CaseId":
        parts = text.split(":")
        if len(parts) != 5:
            raise ValueError(f"case {text!r}: expected OPERATOR:DTYPE:SAMPLE:PLACEMENT:MESH")
        case = CaseId(*parts)
        if case.dtype not in DTYPES or case.mesh not in MESHES:
            raise ValueError(f"case {text!r}: dtypes are {', '.join(DTYPES)}; meshes are {', '.join(MESHES)}")
        return case


@functools.cache
def operators() -> dict[str, OpInfo]:
    """All of torch's list, by name; "std.unbiased" is the variant "unbiased" of std."""
    _let_random_operators_be_random()
    return {op.full_name: op for op in op_db}


@dataclass(frozen=True)
class Sample:
    """One call of an operator: its arguments, with the tensors among them taken out."""

    name: str
    turn: int  # its number among the samples that the sweep takes
    op: OpInfo
    tensors: tuple[torch.Tensor, ...]  # each once, even where it is given twice
    leaves: tuple[Any, ...]  # all arguments, flat; a _Slot where a tensor was
    tree: pytree.TreeSpec

    def call(self, tensors: list[torch.Tensor]) -> Any:
        """The operator with these in place of its tensors."""
        leaves = [tensors[leaf.number] if isinstance(leaf, _Slot) else leaf for leaf in self.leaves]
        input_, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.op(input_, *args, **kwargs)

    def text(self) -> str:
        """The arguments, for people."""
        shown = [f"{_SHORT.get(t.dtype, t.dtype)}{list(t.shape)}" for t in self.tensors]
        leaves = [shown[leaf.number] if isinstance(leaf, _Slot) else repr(leaf) for leaf in self.leaves]
        input_, args, kwargs = pytree.tree_unflatten([_Text(leaf) for leaf in leaves], self.tree)
        return ", ".join([str(input_), *map(str, args), *(f"{name}={value}" for name, value in kwargs.items())])


@dataclass(frozen=True)
class _Slot:
    number: int


class _Text(str):
    def __repr__(self) -> str:
        return str(self)


_SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.complex64: "c64",
}


def supports(op: OpInfo, dtype: torch.dtype) -> bool:
    return dtype in op.supported_dtypes("cpu")


def samples(op: OpInfo, dtype: torch.dtype) -> list[Sample]:
    """The samples of an operator that the sweep takes: spread over torch's list, the same ones every time."""
    uneven, even = _torch_samples(op, dtype, _SIZES), _torch_samples(op, dtype, _EVEN_SIZES)
    if op.name in _FIXED_SIZES or [_shapes(sample) for sample in uneven] == [_shapes(sample) for sample in even]:
        even = []
    chosen = _spread(uneven, SAMPLES_PER_OPERATOR - min(_EVEN_SAMPLES, len(even)), prefix="")
    chosen += _spread(even, SAMPLES_PER_OPERATOR - len(chosen), prefix="even")
    return [_take_apart(op, name, turn, sample) for turn, (name, sample) in enumerate(chosen)]


def _torch_samples(op: OpInfo, dtype: torch.dtype, sizes: dict[str, int]) -> list[SampleInput]:
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    with warnings.catch_warnings(), _sizes_set(sizes):
        warnings.simplefilter("ignore")
        drawn = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        if sizes is _SIZES:
            return list(itertools.islice(drawn, _LONGEST_LIST))
        try:
            return list(itertools.islice(drawn, _LONGEST_LIST))
        except Exception:  # a few lists are written for torch's own sizes
            return []


def _let_random_operators_be_random() -> None:
    """torch's list has each of them set a seed of its own, which would hide what ranks draw."""
    for module in _sample_modules():
        if "wrapper_set_seed" in module.__dict__:
            setattr(module, "wrapper_set_seed", lambda op, *args, **kwargs: op(*args, **kwargs))


def _sample_modules() -> list[ModuleType]:
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("torch.testing._internal.opinfo.") or name.endswith("common_methods_invocations")
    ]


@contextlib.contextmanager
def _sizes_set(sizes: dict[str, int]) -> Iterator[None]:
    """torch's modules of samples with these sizes in place of their own."""
    places = [(m, name) for m in _sample_modules() for name, usual in _SIZES.items() if m.__dict__.get(name) == usual]
    try:
        for module, name in places:
            setattr(module, name, sizes[name])
        yield
    finally:
        for module, name in places:
            setattr(module, name, _SIZES[name])


def _shapes(sample: SampleInput) -> list[torch.Size]:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf.shape for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _spread(listed: list[SampleInput], count: int, prefix: str) -> list[tuple[str, SampleInput]]:
    """`count` of them at equal distances, the first and the last included."""
    if len(listed) <= count:
        numbers = list(range(len(listed)))
    else:
        numbers = sorted({round(i * (len(listed) - 1) / max(count - 1, 1)) for i in range(count)})
    return [(f"{prefix}{number}", listed[number]) for number in numbers]


def _take_apart(op: OpInfo, name: str, turn: int, sample: SampleInput) -> Sample:
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors: list[torch.Tensor] = []
    slots: dict[int, _Slot] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and id(leaf) not in slots:
            slots[id(leaf)] = _Slot(len(tensors))
            tensors.append(leaf)
    flat = tuple(slots.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    return Sample(name, turn, op, tuple(tensors), flat, tree)
