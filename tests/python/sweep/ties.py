"""Operators that sort may put equal elements in any order: which one a device takes depends on how it cuts the work."""

import dataclasses
from typing import Any

import torch
import torch.utils._pytree as pytree

from sweep.cases import Sample
from sweep.dense import Dense, Results, fresh, same_values

_PLACES = {"sort": 1, "argsort": 0, "msort": None}  # which of the results says where the elements were


def in_dense_order(dense: Dense, found: Results) -> Results:
    """The same results, with equal elements in the order of the dense ones. What is not a right order stays as it is."""
    dim = _sorted_dim(dense.sample)
    if dim is None:
        return found
    keys = fresh(dense.sample)[0].detach()
    right, values, grads = dense.results, list(found.values), list(found.grads)
    places = _PLACES[dense.sample.op.name]
    if places is not None and _is_order(keys, right.values[places], values[places], dim):
        values[places] = right.values[places]
    for number, (expected, actual) in enumerate(zip(right.grads, grads)):
        if _is_shuffled(keys, expected, actual, dim):
            grads[number] = expected
    return dataclasses.replace(found, values=values, grads=grads)


def _sorted_dim(sample: Sample) -> int | None:
    """None for operators that do not sort, or that promise an order."""
    if sample.op.name not in _PLACES or not sample.tensors or sample.tensors[0].dim() == 0:
        return None
    _, args, kwargs = pytree.tree_unflatten(list(sample.leaves), sample.tree)
    if kwargs.get("stable"):
        return None
    return 0 if sample.op.name == "msort" else kwargs.get("dim", args[0] if args else -1)


def _is_order(keys: torch.Tensor, expected: Any, actual: Any, dim: int) -> bool:
    """Do the places lead to each element once, and to the same elements in the same order?"""
    if not isinstance(actual, torch.Tensor) or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not torch.equal(actual.sort(dim).values, expected.sort(dim).values):
        return False
    return same_values(keys.gather(dim, actual), keys.gather(dim, expected))


def _is_shuffled(keys: torch.Tensor, expected: Any, actual: Any, dim: int) -> bool:
    """Do equal elements have the same gradients, in whatever order?"""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor) or actual.shape != keys.shape:
        return False
    return same_values(_by_key(keys, expected, dim), _by_key(keys, actual, dim))


def _by_key(keys: torch.Tensor, values: torch.Tensor, dim: int) -> torch.Tensor:
    by_value = values.argsort(dim)
    by_key = keys.gather(dim, by_value).argsort(stable=True, dim=dim)
    return values.gather(dim, by_value.gather(dim, by_key))
