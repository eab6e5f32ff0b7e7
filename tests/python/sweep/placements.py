"""The ways in which the inputs of a sample are sharded.

A placement is written as a short text that belongs to no library: "R" (replicated), "S0" (dim 0 sharded), "P" (each
rank holds a summand). One tensor has one of them per mesh axis; one choice gives them for all tensors of a sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

Placements: TypeAlias = tuple[str, ...]

MESHES: dict[str, tuple[int, ...]] = {"4": (4,), "2x2": (2, 2)}
CHOICES_PER_SAMPLE = 6


@dataclass(frozen=True)
class Choice:
    name: str
    of_tensor: tuple[Placements, ...]  # one per tensor of the sample

    def __str__(self) -> str:
        return ", ".join("(" + ", ".join(placements) + ")" for placements in self.of_tensor)


@dataclass(frozen=True)
class _Operand:
    """What a choice may depend on. Partial is for tensors of the type under test: a sum of bools is none."""

    number: int
    ndim: int
    can_be_partial: bool

    def shard(self, dim: int) -> str:
        """Sharded in `dim`, from the end where negative; in the nearest dim where there are fewer."""
        if self.ndim == 0:
            return "R"
        return f"S{min(dim, self.ndim - 1) if dim >= 0 else max(self.ndim + dim, 0)}"

    def partial(self) -> str:
        return "P" if self.can_be_partial else "R"

    def rotated(self, placements: Sequence[Placements]) -> Placements:
        return placements[self.number % len(placements)]


_Rule: TypeAlias = Callable[[_Operand], Placements]

# Of each mesh: first the choices that every sample gets, then those from which the rest are drawn, another part of them
# for each sample.
_RULES: dict[str, tuple[dict[str, _Rule], dict[str, _Rule]]] = {
    "4": (
        {
            "replicate": lambda x: ("R",),
            "dim0": lambda x: (x.shard(0),),
            "last": lambda x: (x.shard(-1),),
            "partial": lambda x: (x.partial(),),
        },
        {
            "mixed": lambda x: x.rotated([(x.shard(0),), (x.shard(-1),), ("R",)]),
            "swapped": lambda x: x.rotated([("R",), (x.shard(0),), (x.shard(-1),)]),
            "dim1": lambda x: (x.shard(1),),
            "partial0": lambda x: x.rotated([(x.partial(),), (x.shard(0),)]),
            "dim2": lambda x: (x.shard(2),),
        },
    ),
    "2x2": (
        {
            "replicate": lambda x: ("R", "R"),
            "grid": lambda x: (x.shard(0), x.shard(1)),
            "twice": lambda x: (x.shard(0), x.shard(0)),
            "partial": lambda x: (x.partial(), x.shard(0)),
        },
        {
            "mixed": lambda x: x.rotated([(x.shard(0), "R"), ("R", x.shard(0)), ("R", "R")]),
            "last": lambda x: ("R", x.shard(-1)),
            "transposed": lambda x: (x.shard(-1), x.shard(0)),
            "partial0": lambda x: x.rotated([("R", x.partial()), (x.shard(0), "R")]),
        },
    ),
}


def choices(mesh: str, tensors: Sequence[torch.Tensor], dtype: torch.dtype, turn: int) -> list[Choice]:
    """At most CHOICES_PER_SAMPLE choices, all different. `turn`: the number of the sample among its operator's."""
    operands = [
        _Operand(number, tensor.ndim, tensor.dtype == dtype and dtype != torch.bool)
        for number, tensor in enumerate(tensors)
    ]
    always, drawn = _RULES[mesh]
    start = 2 * turn % len(drawn)
    names = [*always, *list(drawn)[start:], *list(drawn)[:start]]
    found: dict[tuple[Placements, ...], str] = {}
    for name in names:
        rule = (always | drawn)[name]
        found.setdefault(tuple(rule(operand) for operand in operands), name)
    return [Choice(name, of_tensor) for of_tensor, name in found.items()][:CHOICES_PER_SAMPLE]


def summand(tensor: torch.Tensor, coordinate: int, size: int) -> torch.Tensor:
    """What the rank at `coordinate` of a mesh axis holds of a tensor that is Partial over the axis.

    The parts differ, so that an operator which takes a part for the whole is found out, and they add up exactly in any
    order. Infinities, NaNs and zeros have no such parts: an infinity is held once, a zero (that may be a -0) by all.
    """
    weights = [1] if size == 1 else [2, -1] if size == 2 else [1, 1, -1] + [0] * (size - 3)
    part = tensor * weights[coordinate]
    if tensor.is_floating_point() or tensor.is_complex():
        once = tensor if coordinate == 0 else torch.zeros_like(tensor)
        part = torch.where(torch.isfinite(tensor), part, once)
        part = torch.where(tensor == 0, tensor, part)
    return part
