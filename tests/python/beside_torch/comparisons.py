"""The comparisons, each in every world."""

from __future__ import annotations

import itertools
import math
import random

import torch
import torch.distributed as dist
from torch.distributed._shard import _shard_tensor as torch_shard_tensor
from torch.distributed._shard import sharded_tensor as torch_sharded
from torch.distributed._shard import sharding_spec as torch_spec
from torch.distributed._shard.sharded_tensor import ShardedTensor as TorchShardedTensor
from torch.distributed._shard.sharding_spec import _infer_sharding_spec_from_shards_metadata as torch_infer
from torch.distributed._shard.sharding_spec import _internals as torch_internals

import sherd
from beside_torch.cases import DTYPES, Case, chunk_boxes, random_case, random_cases, random_tiling
from beside_torch.same import (
    gathered,
    made,
    made_by_torch,
    pointers,
    same,
    same_as_whole,
    same_data,
    same_local,
    same_metadata,
    torch_can_gather,
    torch_can_make,
    torch_can_reshard,
    torch_can_shard,
)
from sherd import sharded


def metadata_of_specs(rank: int, world: int) -> None:
    for case in random_cases("metadata", world, 200):
        theirs = case.theirs().build_metadata(
            torch.Size(case.size), torch_sharded.TensorProperties(case.dtype, requires_grad=False)
        )
        ours = case.ours().build_metadata(case.size, sharded.TensorProperties(case.dtype))
        same_metadata(ours, theirs, case)
        if torch_can_make(case):
            inferred = sharded.infer_sharding_spec(ours.shards_metadata, case.size)
            expected = torch_infer(theirs.shards_metadata)
            same(type(inferred).__name__, type(expected).__name__, f"inferred from {case}")
            if isinstance(inferred, sharded.ChunkShardingSpec):
                same(inferred.dim, expected.dim, f"inferred from {case}")
                same(list(map(str, inferred.placements)), list(map(str, expected.placements)), f"inferred from {case}")


def factories(rank: int, world: int) -> None:
    for case in random_cases("factories", world, 40):
        for name in ("ones", "zeros"):
            ours = getattr(sharded, name)(case.ours(), *case.size, dtype=case.dtype)
            theirs = getattr(torch_sharded, name)(case.theirs(), *case.size, dtype=case.dtype)
            same_local(ours, theirs, f"{name}: {case}")
            same_metadata(sharded.metadata(ours), theirs.metadata(), f"{name}: {case}")
        ours = sharded.full(case.ours(), case.size, 3, dtype=case.dtype)
        theirs = torch_sharded.full(case.theirs(), case.size, 3, dtype=case.dtype)
        same_local(ours, theirs, f"full: {case}")
        if case.dtype.is_floating_point:
            ours = sharded.empty(case.ours(), *case.size, dtype=case.dtype, requires_grad=True)
            theirs = torch_sharded.empty(case.theirs(), *case.size, dtype=case.dtype, requires_grad=True)
            same_metadata(sharded.metadata(ours), theirs.metadata(), f"empty with a gradient: {case}")
            same([s.tensor.requires_grad for s in sharded.local_shards(ours)],
                 [s.tensor.requires_grad for s in theirs.local_shards()], case)
            same((ours.is_leaf, ours.requires_grad), (True, True), case)


def shards_and_gather(rank: int, world: int) -> None:
    draw = random.Random(world)
    asked = 0
    for case in random_cases("shards", world, 60):
        dst = draw.randrange(world)
        ours = made(case, rank)
        whole = gathered(ours, rank, dst)
        if rank == dst:
            same_data(whole, case.whole(), case)
        if not torch_can_make(case):
            continue
        theirs = made_by_torch(case, rank)
        same_metadata(sharded.metadata(ours), theirs.metadata(), case)
        same_local(ours, theirs, case)
        asked += torch_can_gather(case)
        if torch_can_gather(case):
            out = torch.empty(case.size, dtype=case.dtype) if rank == dst else None
            theirs.gather(dst, out, dtype=case.dtype)
            if out is not None:
                same_data(whole, out, case)
        # One side in the form of the other: the same memory, cut alike.
        ours = sharded.from_torch(theirs)
        same_metadata(sharded.metadata(ours), theirs.metadata(), f"from_torch: {case}")
        same(pointers(sharded.local_shards(ours)), pointers(theirs.local_shards()), case)
        back = sherd.to_torch(ours)
        assert isinstance(back, TorchShardedTensor), case
        same_metadata(sharded.metadata(ours), back.metadata(), f"to_torch: {case}")
        same_local(ours, back, f"to_torch: {case}")
        same(back._process_group, dist.group.WORLD, case)
        whole = gathered(ours, rank)
        if rank == 0:
            same_data(whole, case.whole(), f"from_torch: {case}")
    same(asked >= 30, True, f"gathered by torch {asked} times")


def open_sizes(rank: int, world: int) -> None:
    """None in the size: rows are counted in the order of ranks."""
    for rows in ([2] * world, list(range(1, world + 1)), [3] + [1] * (world - 1)):
        local = torch.full((rows[rank], 3), float(rank))
        mine = sharded.Shard.from_tensor_and_offsets(local, [0, 0], rank)
        theirs = torch_sharded.init_from_local_shards(
            [torch_sharded.Shard.from_tensor_and_offsets(local, [0, 0], rank)], None, 3
        )
        ours = sharded.init_from_local_shards([mine], None, 3)
        same_metadata(sharded.metadata(ours), theirs.metadata(), rows)
        same_local(ours, theirs, rows)


def cut_by_one_rank(rank: int, world: int) -> None:
    draw = random.Random(world)
    asked = 0
    for case in random_cases("shard_tensor", world, 60):
        src = draw.randrange(world)
        data = case.whole() if rank == src else torch.zeros(case.size, dtype=case.dtype)
        ours = sharded.shard_tensor(data, case.ours(), src)
        same_as_whole(ours, case, case.whole(), rank, case)
        asked += torch_can_shard(case, world)
        if torch_can_shard(case, world):
            theirs = torch_shard_tensor(data, case.theirs(), src)
            same_metadata(sharded.metadata(ours), theirs.metadata(), case)
            same_local(ours, theirs, case)
    same(asked >= 10, True, f"cut by torch {asked} times")


def reshards(rank: int, world: int) -> None:
    draw = random.Random(world)
    asked = 0
    for i in range(80):
        before = random_case(draw, world)
        after = random_case(draw, world)
        if i % 2:  # one that torch can do: permuted chunks along the same dim or another
            side = world * draw.randrange(1, 3)
            dims = draw.choice([(0, 1), (1, 0), (0, 0), (1, 1)])
            orders = [draw.sample(range(world), world) for _ in dims]
            before, after = (
                Case([side, side], torch.float64, chunk_boxes([side, side], dim, world), order, dim)
                for dim, order in zip(dims, orders, strict=True)
            )
        elif after.dim is None:
            after.boxes = random_tiling(draw, before.size)
            after.ranks = [draw.randrange(world) for _ in after.boxes]
            if math.prod(before.size) == 0:
                continue
        else:
            after.dim = draw.randrange(len(before.size))
            after.boxes = chunk_boxes(before.size, after.dim, len(after.ranks))
        after.size, after.dtype = before.size, before.dtype
        what = f"{before} to {after}"
        ours = made(before, rank)
        moved = sharded.reshard(ours, after.ours())
        same_as_whole(moved, after, before.whole(), rank, what)
        same_as_whole(ours, before, before.whole(), rank, f"{what}: the tensor itself")
        if torch_can_reshard(before, after, world):
            asked += 1
            ((_, local),) = before.mine(rank)
            theirs = TorchShardedTensor._init_from_local_tensor(local, before.theirs(), *before.size)
            same_local(sharded.init_from_local_tensor(local, before.ours(), *before.size), theirs, before)
            theirs.reshard(after.theirs())
            same_metadata(sharded.metadata(moved), theirs.metadata(), what)
            same_local(moved, theirs, what)
        same(sharded.reshard_(ours, after.ours()) is ours, True, what)
        same_as_whole(ours, after, before.whole(), rank, f"{what}, in place")
        same(sharded.sharding_spec(ours), after.ours(), what)
    same(asked >= 20, True, f"resharded by torch {asked} times")


def arithmetic(rank: int, world: int) -> None:
    """What the helpers of specs say."""
    for rows, chunks in itertools.product(range(12), range(1, 6)):
        split = torch_internals.get_split_size(rows, chunks)
        same(sharded.get_split_size(rows, chunks), split, (rows, chunks))
        ranks = random.Random(rows * 100 + chunks).sample(range(chunks), chunks)
        devices = [f"rank:{r}/cpu" for r in ranks]
        ours, theirs = sharded.ChunkShardingSpec(0, devices), torch_spec.ChunkShardingSpec(0, list(devices))
        for i in range(chunks):
            same(sharded.get_chunked_dim_size(rows, split, i),
                 torch_internals.get_chunked_dim_size(rows, split, i), (rows, chunks, i))
            same(sharded.get_chunk_sharding_params(rows, chunks, ours, i),
                 torch_internals.get_chunk_sharding_params(rows, chunks, theirs, i), (rows, chunks, i))
    for text in ("rank:0/cpu", "rank:12/cuda:3", "cpu", "cuda:1", "worker1", "worker1/cuda:0", "a worker/meta"):
        ours, theirs = sharded.RemoteDevice(text), dist._remote_device(text)
        same(str(ours), str(theirs), text)
        same((ours.worker_name(), ours.rank(), ours.device()),
             (theirs.worker_name(), theirs.rank(), theirs.device()), text)
    formats = (torch.contiguous_format, torch.channels_last, torch.preserve_format)
    for dtype, format, flag in itertools.product(DTYPES, formats, (False, True)):
        ours = sharded.TensorProperties(dtype, requires_grad=flag, memory_format=format, pin_memory=not flag)
        theirs = torch_sharded.TensorProperties(dtype, requires_grad=flag, memory_format=format, pin_memory=not flag)
        as_tuple = theirs.__getstate__()
        same(ours.to_tuple(), (*as_tuple[:3], as_tuple[3].value, as_tuple[4]), theirs)
        same(sharded.TensorProperties.from_tuple(ours.to_tuple()), ours, theirs)
