"""What is compared, and what torch cannot be asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed._shard import sharded_tensor as torch_sharded
from torch.distributed._shard.metadata import ShardMetadata as TorchShardMetadata

import sherd
from beside_torch.cases import Box, Case, cut
from sherd import sharded


def same(a: object, b: object, what: object) -> None:
    if a != b:
        raise AssertionError(f"{what}:\n  sherd: {a}\n  torch: {b}")


def same_data(a: torch.Tensor | None, b: torch.Tensor, what: object) -> None:
    if a is None or a.dtype != b.dtype or not a.equal(b):
        raise AssertionError(f"{what}:\n  sherd: {a}\n  expected: {b}")


def shards_of(metadata: Any, size: Any) -> list[tuple[Any, ...]]:
    """Shards in an order of their own. Offsets past the end are at it: see Case.past_the_end."""
    shards = []
    for shard in metadata.shards_metadata:
        offsets = tuple(min(offset, n) for offset, n in zip(shard.shard_offsets, size, strict=True))
        shards.append((offsets, tuple(shard.shard_sizes), str(shard.placement)))
    return sorted(shards)


def same_metadata(ours: sharded.ShardedTensorMetadata, theirs: Any, what: object) -> None:
    same(ours.size, theirs.size, what)
    same(shards_of(ours, ours.size), shards_of(theirs, theirs.size), what)
    for name in ("dtype", "layout", "requires_grad", "memory_format", "pin_memory"):
        same(getattr(ours.tensor_properties, name), getattr(theirs.tensor_properties, name), f"{what}, {name}")


class LocalShards:
    """The data of this rank's shards by rectangle. Several empty ones may lie on one spot."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.by_box: dict[str, list[torch.Tensor]] = {}
        for shard in sharded.local_shards(tensor):
            self.by_box.setdefault(str(shard.metadata.box()), []).append(shard.tensor)

    def take(self, box: Box, expected: torch.Tensor, what: object) -> None:
        found = self.by_box.get(str(sherd.Box(*box)))
        same_data(found.pop() if found else None, expected, f"{what}, shard {box}")

    def none_is_left(self, what: object) -> None:
        same([box for box, shards in self.by_box.items() if shards], [], what)


def same_local(ours: torch.Tensor, theirs: Any, what: object) -> None:
    mine = LocalShards(ours)
    size = theirs.metadata().size
    for shard in theirs.local_shards():
        offsets = [min(offset, n) for offset, n in zip(shard.metadata.shard_offsets, size, strict=True)]
        mine.take((offsets, shard.metadata.shard_sizes), shard.tensor, what)
    mine.none_is_left(what)


def same_as_whole(ours: torch.Tensor, case: Case, whole: torch.Tensor, rank: int, what: object) -> None:
    """This rank's shards are those parts of the whole tensor that the case gives it."""
    mine = LocalShards(ours)
    for box, owner in zip(case.boxes, case.ranks, strict=True):
        if owner == rank:
            mine.take(box, cut(whole, box), what)
    mine.none_is_left(what)


def pointers(shards: list[Any]) -> dict[tuple[int, ...], int]:
    return {tuple(shard.metadata.shard_offsets): shard.tensor.data_ptr() for shard in shards}


def gathered(tensor: torch.Tensor, rank: int, dst: int = 0) -> torch.Tensor | None:
    whole = torch.empty(tensor.shape, dtype=tensor.dtype) if rank == dst else None
    sharded.gather(tensor, dst, whole)
    return whole


def made(case: Case, rank: int) -> torch.Tensor:
    shards = [sharded.Shard(data, sharded.ShardMetadata(*box, f"rank:{rank}/cpu")) for box, data in case.mine(rank)]
    return sharded.init_from_local_shards(shards, case.size)


def made_by_torch(case: Case, rank: int) -> Any:
    shards = [
        torch_sharded.Shard(data, TorchShardMetadata(*box, f"rank:{rank}/cpu")) for box, data in case.mine(rank)
    ]
    return torch_sharded.init_from_local_shards(shards, case.size)


def torch_can_make(case: Case) -> bool:
    """Empty shards overlap others, says torch."""
    return all(math.prod(sizes) > 0 for _, sizes in case.boxes)


def torch_can_gather(case: Case) -> bool:
    """Offsets past the end make the gathering rank fail alone; nothing to send is refused by Gloo."""
    return not case.past_the_end() and math.prod(case.size) > 0


def torch_can_shard(case: Case, world: int) -> bool:
    """Chunks only, one for each rank, and no chunk past the end: the source dies and the others wait for ever."""
    return case.dim is not None and case.one_each(world) and not case.past_the_end() and math.prod(case.size) > 0


def torch_can_reshard(before: Case, after: Case, world: int) -> bool:
    """Chunks to chunks, one shard each. Along the same dim a cycle of three ranks hangs; along another, Gloo wants equal
    sizes of all; bool does not pass through its all_to_all."""
    if before.dim is None or after.dim is None or before.dtype == torch.bool:
        return False
    if not (before.one_each(world) and after.one_each(world)):
        return False
    if before.dim == after.dim:
        to = dict(zip(before.ranks, after.ranks, strict=True))
        return torch_can_gather(before) and all(to[to[rank]] == rank for rank in to)
    return before.size[before.dim] % world == 0 and after.size[after.dim] % world == 0


def class_of_error(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


