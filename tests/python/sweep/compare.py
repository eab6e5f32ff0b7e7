"""Are these results right? With the tolerances that torch's own tests grant the operator."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo

from sweep.dense import Dense, Results, moments, same_values
from sweep.ties import in_dense_order

# A result counts as rounded, not as wrong, where it is this many times as far from the float64 result as the dense one.
_TIMES_DENSE_ERROR = 8
_TIMES_EPSILON = 32  # of the largest element: the dense one may be exact by chance
_ZERO = 1e-12  # in float64
_DEVIATIONS = 8  # by which the moments of a random result may be off


BAD_LAST = ("right", "rounding", "wrong")


@dataclass(frozen=True)
class Verdict:
    outcome: str  # one of BAD_LAST
    message: str = ""


@dataclass(frozen=True)
class Tolerance:
    rtol: float
    atol: float


def tolerance(op: OpInfo, dtype: torch.dtype) -> Tolerance:
    """The widest that torch grants the operator in this type, in any of its tests."""
    rtol, atol = default_tolerances(dtype)
    decorators: list[Any] = []
    for decorator in op.decorators:
        if not isinstance(decorator, DecorateInfo):
            decorators.append(decorator)
        elif decorator.device_type in (None, "cpu") and (decorator.dtypes is None or dtype in decorator.dtypes):
            decorators += decorator.decorators
    for decorator in decorators:
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
            rtol, atol = max(rtol, decorator.d[dtype].rtol), max(atol, decorator.d[dtype].atol)
        elif isinstance(decorator, precisionOverride) and dtype in decorator.d:
            atol = max(atol, decorator.d[dtype])
    return Tolerance(rtol, atol)


def compare(dense: Dense, found: Results) -> Verdict:
    """The worst that is true of any value or gradient."""
    right = dense.results
    if len(right.values) != len(found.values):
        return Verdict("wrong", f"{len(found.values)} results instead of {len(right.values)}")
    if dense.random or dense.unspecified:
        return _compare_random(dense, found)
    found = in_dense_order(dense, found)
    wider = dense.wider
    worst = Verdict("right")
    for number, (expected, actual) in enumerate(zip(right.values, found.values)):
        reference = wider.values[number] if wider is not None else None
        worst = _worse(worst, _compare_value(f"result {number}", dense, expected, actual, reference))
    for number, (expected, actual) in enumerate(zip(right.grads, found.grads)):
        reference = wider.grads[number] if wider is not None and len(wider.grads) > number else None
        expected, actual = _zeros_for_none(expected, actual)
        if expected is not None:
            worst = _worse(worst, _compare_value(f"gradient {number}", dense, expected, actual, reference))
    return worst


def _compare_random(dense: Dense, found: Results) -> Verdict:
    for number, (expected, actual) in enumerate(zip(dense.results.values, found.values)):
        if fault := _metadata_fault(expected, actual):
            return Verdict("wrong", f"result {number}: {fault}")
    if dense.unspecified:
        return Verdict("right")
    for number, (statistics, actual) in enumerate(zip(dense.statistics, found.values)):
        here = moments(actual)
        if statistics is None or here is None:
            continue
        mean, deviation = statistics
        limit = _DEVIATIONS * deviation + 1e-3 * (1 + mean.abs())
        if ((here - mean).abs() > limit).any():
            return Verdict(
                "wrong",
                f"result {number}: mean and deviation are {_numbers(here)}, usual are {_numbers(mean)} "
                f"give or take {_numbers(deviation)}",
            )
    return Verdict("right")


def _compare_value(name: str, dense: Dense, expected: Any, actual: Any, reference: Any) -> Verdict:
    if fault := _metadata_fault(expected, actual):
        return Verdict("wrong", f"{name}: {fault}")
    if not isinstance(expected, torch.Tensor):
        same = expected == actual or (expected != expected and actual != actual)
        if not same and isinstance(expected, float):
            same = abs(expected - actual) <= 1e-5 * abs(expected)
        return Verdict("right") if same else Verdict("wrong", f"{name}: {actual} instead of {expected}")
    if same_values(expected, actual):
        return Verdict("right")
    if expected.dtype == torch.complex32:  # torch cannot compare these
        expected, actual, reference = expected.to(torch.complex64), actual.to(torch.complex64), None
    granted = tolerance(dense.sample.op, expected.dtype)
    close = torch.isclose(actual, expected, rtol=granted.rtol, atol=granted.atol, equal_nan=True)
    if close.all():
        return Verdict("right")
    message = f"{name}: {_difference(expected, actual, close)}"
    return Verdict("rounding" if _is_rounding(expected, actual, reference) else "wrong", message)


def _metadata_fault(expected: Any, actual: Any) -> str:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        alike = type(expected) is type(actual)
        return "" if alike else f"a {type(actual).__name__} instead of a {type(expected).__name__}"
    if expected.shape != actual.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if expected.dtype != actual.dtype:
        return f"{actual.dtype} instead of {expected.dtype}"
    return ""


def _is_rounding(expected: torch.Tensor, actual: torch.Tensor, reference: Any) -> bool:
    """Is the result as near to the one in float64 as the dense result is, but for a small factor?"""
    if not isinstance(reference, torch.Tensor) or reference.shape != expected.shape:
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return False
    wide = reference.dtype
    finite = torch.isfinite(reference) & torch.isfinite(expected)
    if not torch.equal(torch.isfinite(actual) | ~finite, torch.ones_like(finite)):
        return False
    if not finite.any():
        return False
    exact = reference[finite]
    dense_error = (expected.to(wide)[finite] - exact).abs().max()
    error = (actual.to(wide)[finite] - exact).abs().max()
    # Where all is zero, even if not to the last place, terms have cancelled that are about as large as the gradient
    # that came in: about 1.
    largest = exact.abs().max().item()
    size = largest if largest > _ZERO else 1.0
    limit = _TIMES_DENSE_ERROR * dense_error + _TIMES_EPSILON * torch.finfo(expected.dtype).eps * size
    return bool(error <= limit)


def _difference(expected: torch.Tensor, actual: torch.Tensor, close: torch.Tensor) -> str:
    far = (~close).nonzero()
    place = tuple(far[0].tolist())
    return (
        f"{len(far)} of {close.numel()} elements differ; at {list(place)} "
        f"{actual[place].item()} instead of {expected[place].item()}"
    )


def _zeros_for_none(expected: Any, actual: Any) -> tuple[Any, Any]:
    """A gradient that is left out is one of zeros."""
    if expected is None and actual is not None:
        expected = torch.zeros_like(actual)
    if actual is None and expected is not None:
        actual = torch.zeros_like(expected)
    return expected, actual


def _worse(a: Verdict, b: Verdict) -> Verdict:
    return b if BAD_LAST.index(b.outcome) > BAD_LAST.index(a.outcome) else a


def _numbers(values: torch.Tensor) -> str:
    return " and ".join(f"{value:.3g}" for value in values.tolist())
