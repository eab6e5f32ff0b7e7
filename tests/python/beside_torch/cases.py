"""What both sides get: random tensors and ways to cut them, the same on every rank."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch.distributed._shard import sharding_spec as torch_spec
from torch.distributed._shard.metadata import ShardMetadata as TorchShardMetadata

from sherd import sharded

Box = tuple[list[int], list[int]]  # offsets, sizes


@dataclass
class Case:
    """A tensor and how it is cut, for both sides."""

    size: list[int]
    dtype: torch.dtype
    boxes: list[Box]
    ranks: list[int]  # by box
    dim: int | None  # of a chunk spec, else None

    def devices(self) -> list[str]:
        return [f"rank:{rank}/cpu" for rank in self.ranks]

    def ours(self) -> sharded.ShardingSpec:
        if self.dim is not None:
            return sharded.ChunkShardingSpec(self.dim, self.devices())
        shards = zip(self.boxes, self.devices(), strict=True)
        return sharded.EnumerableShardingSpec([sharded.ShardMetadata(*box, device) for box, device in shards])

    def theirs(self) -> torch_spec.ShardingSpec:
        if self.dim is not None:
            return torch_spec.ChunkShardingSpec(self.dim, self.devices())
        shards = zip(self.boxes, self.devices(), strict=True)
        return torch_spec.EnumerableShardingSpec([TorchShardMetadata(*box, device) for box, device in shards])

    def whole(self) -> torch.Tensor:
        values = torch.arange(math.prod(self.size), dtype=torch.int64)
        return (values % 2 == 0 if self.dtype == torch.bool else values + 1).to(self.dtype).reshape(self.size)

    def mine(self, rank: int) -> list[tuple[Box, torch.Tensor]]:
        whole = self.whole()
        return [(box, cut(whole, box)) for box, owner in zip(self.boxes, self.ranks, strict=True) if owner == rank]

    def past_the_end(self) -> bool:
        """torch lets chunks without rows begin behind the tensor, and fails on them later, on one rank alone."""
        if self.dim is None:
            return False
        rows = self.size[self.dim]
        return -(-rows // len(self.ranks)) * (len(self.ranks) - 1) > rows

    def one_each(self, world: int) -> bool:
        return sorted(self.ranks) == list(range(world))

    def __str__(self) -> str:
        return f"{self.ours()} of {self.dtype} {self.size}"


def cut(whole: torch.Tensor, box: Box) -> torch.Tensor:
    for dim, (offset, size) in enumerate(zip(*box, strict=True)):
        whole = whole.narrow(dim, offset, size)
    return whole.clone(memory_format=torch.contiguous_format)


def chunk_boxes(size: list[int], dim: int, chunks: int) -> list[Box]:
    rows = size[dim]
    split = -(-rows // chunks)
    boxes = []
    for i in range(chunks):
        begin, end = min(split * i, rows), min(split * (i + 1), rows)
        boxes.append(([begin if d == dim else 0 for d in range(len(size))],
                      [end - begin if d == dim else n for d, n in enumerate(size)]))
    return boxes


def random_tiling(draw: random.Random, size: list[int]) -> list[Box]:
    """Rectangles that tile the tensor, none empty, by cutting again and again."""
    boxes: list[Box] = [([0] * len(size), list(size))]
    for _ in range(draw.randrange(7)):
        offsets, sizes = boxes.pop(draw.randrange(len(boxes)))
        dim = draw.randrange(len(size))
        if sizes[dim] < 2:
            boxes.append((offsets, sizes))
            continue
        at = draw.randrange(1, sizes[dim])
        for begin, n in ((0, at), (at, sizes[dim] - at)):
            boxes.append(([o + begin if d == dim else o for d, o in enumerate(offsets)],
                          [n if d == dim else s for d, s in enumerate(sizes)]))
    draw.shuffle(boxes)
    return boxes


DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16]


def random_case(draw: random.Random, world: int) -> Case:
    dtype = draw.choice(DTYPES)
    size = [draw.randrange(1, 8) for _ in range(draw.randrange(1, 4))]
    if draw.random() < 0.4:
        boxes = random_tiling(draw, size)
        return Case(size, dtype, boxes, [draw.randrange(world) for _ in boxes], None)
    if draw.random() < 0.1:
        size[draw.randrange(len(size))] = 0
    dim = draw.randrange(len(size))
    if draw.random() < 0.3:  # several chunks for a rank, or none
        ranks = [draw.randrange(world) for _ in range(draw.randrange(1, 2 * world + 1))]
    else:
        ranks = draw.sample(range(world), world)
    return Case(size, dtype, chunk_boxes(size, dim, len(ranks)), ranks, dim)


def random_cases(name: str, world: int, count: int) -> list[Case]:
    draw = random.Random(f"{name} {world}")
    return [random_case(draw, world) for _ in range(count)]
