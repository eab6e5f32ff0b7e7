"""sherd, with threads as ranks."""

from collections.abc import Callable
from typing import Any

import torch

import sherd
from sweep.placements import Placements, summand


class SherdPeer:
    name = "sherd"
    shares_generator = False

    def run(self, ranks: int, body: Callable[[int], None]) -> None:
        sherd.spawn(ranks, body)

    def is_echo(self, error: BaseException) -> bool:
        return "this rank stopped because of it" in str(error)

    def mesh(self, shape: tuple[int, ...]) -> Any:
        return sherd.init_device_mesh("cpu", shape)

    def place(self, tensor: torch.Tensor, mesh: Any, placements: Placements) -> torch.Tensor:
        kinds = [_placement(text) for text in placements]
        without_partial = [sherd.Replicate() if text == "P" else kind for text, kind in zip(placements, kinds)]
        placed = sherd.distribute_tensor(tensor, mesh, without_partial, src_data_rank=None)
        if "P" not in placements:
            return placed
        local = sherd.to_local(placed)
        for axis, text in enumerate(placements):
            if text == "P":
                local = summand(local, mesh.get_local_rank(axis), mesh.size(axis))
        return sherd.from_local(local, mesh, kinds, shape=placed.shape, stride=placed.stride())

    def placements(self, tensor: torch.Tensor) -> Placements | None:
        return tuple(_text(kind) for kind in sherd.placements(tensor)) if sherd.is_dtensor(tensor) else None

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        return sherd.full_tensor(tensor) if sherd.is_dtensor(tensor) else tensor


def _placement(text: str) -> Any:
    return sherd.Replicate() if text == "R" else sherd.Partial("sum") if text == "P" else sherd.Shard(int(text[1:]))


def _text(kind: Any) -> str:
    if isinstance(kind, sherd.Shard):
        return f"S{kind.dim}"
    return {"Replicate": "R", "Partial": "P"}.get(type(kind).__name__, type(kind).__name__)


def make() -> SherdPeer:
    return SherdPeer()
