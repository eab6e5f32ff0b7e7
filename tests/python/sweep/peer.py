"""Who is asked: a library that shards tensors over ranks, and those are threads of this process."""

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import torch

from sweep.placements import Placements

NAMES = ("sherd", "torch")


class Peer(Protocol):
    """All functions but `run` are called by the ranks, within `run`."""

    name: str
    # Ranks draw from one generator, as a thread cannot have its own: what they draw says nothing about processes.
    shares_generator: bool

    def run(self, ranks: int, body: Callable[[int], None]) -> None:
        """`body(rank)` on each rank, until all have returned. Where one raises, the others' collectives raise too.

        May raise what a rank raised.
        """

    def is_echo(self, error: BaseException) -> bool:
        """Was this raised because another rank failed?"""

    def mesh(self, shape: tuple[int, ...]) -> Any: ...

    def place(self, tensor: torch.Tensor, mesh: Any, placements: Placements) -> torch.Tensor:
        """This rank's part of a tensor that every rank has whole. Nothing is sent."""

    def placements(self, tensor: torch.Tensor) -> Placements | None:
        """None for a tensor that is not sharded over ranks at all."""

    def whole(self, tensor: torch.Tensor) -> torch.Tensor: ...


def load(name: str) -> Peer:
    return importlib.import_module(f"sweep.{name}_peer").make()
