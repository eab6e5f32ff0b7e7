"""ShardedTensors beside those of torch.distributed, in the same processes: worlds of one to four ranks over Gloo.

Random specs, sizes and dtypes go through both; what torch gives must be what sherd gives. Where torch is known to be
wrong, to raise or to hang, it is not asked (`torch_can_...`, and the class Known): sherd is compared with the whole
tensor instead.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import tempfile
import traceback
import unittest
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")  # torch's own, about its ShardedTensor: one for each call

from torch.distributed._shard import _shard_tensor as torch_shard_tensor  # noqa: E402
from torch.distributed._shard import sharded_tensor as torch_sharded  # noqa: E402
from torch.distributed._shard import sharding_spec as torch_spec  # noqa: E402
from torch.distributed._shard.api import load_with_process_group as torch_scope  # noqa: E402
from torch.distributed._shard.metadata import ShardMetadata as TorchShardMetadata  # noqa: E402
from torch.distributed._shard.sharded_tensor import ShardedTensor as TorchShardedTensor  # noqa: E402
from torch.distributed._shard.sharding_spec import _infer_sharding_spec_from_shards_metadata as torch_infer  # noqa: E402
from torch.distributed._shard.sharding_spec import _internals as torch_internals  # noqa: E402

import sherd  # noqa: E402
from sherd import sharded  # noqa: E402

SECONDS = 120  # for one world


# Worlds of processes --------------------------------------------------------------------------------------------------


def _rank_main(rank: int, world: int, file: str, run: Callable[[int, int], None], answer: Any) -> None:
    warnings.simplefilter("ignore")  # unittest shows them again
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
        run(rank, world)
        dist.barrier()
        answer.send("")
    except BaseException:
        answer.send(f"rank {rank} of {world}:\n{traceback.format_exc()}")
        os._exit(1)


def in_world(world: int, run: Callable[[int, int], None]) -> None:
    """Runs `run(rank, world)` in processes of its own, forked so that torch is imported once."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(world)]
        ranks = [
            context.Process(
                target=_rank_main, args=(rank, world, str(pathlib.Path(folder, "store")), run, ends[rank][1])
            )
            for rank in range(world)
        ]
        for rank in ranks:
            rank.start()
        # The first answer that tells of a failure will do: the other ranks may wait for that one.
        waiting = [end[0] for end in ends]
        failure = None
        while waiting and failure is None:
            ready = multiprocessing.connection.wait(waiting, timeout=SECONDS)
            if not ready:
                failure = f"no answer within {SECONDS} s"
            for end in ready:
                waiting.remove(end)
                failure = failure or end.recv() or None
        for rank in ranks:
            if failure is not None:
                rank.kill()
            rank.join()
    if failure is not None:
        raise AssertionError(failure)


# Cases, the same on every rank ----------------------------------------------------------------------------------------

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


# What is compared -----------------------------------------------------------------------------------------------------


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


# The comparisons, each in every world ---------------------------------------------------------------------------------


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


def errors(rank: int, world: int) -> None:
    """The same class on every rank for the same mistake, unless said otherwise. No call of torch here leaves a rank
    waiting for another."""
    here = f"rank:{rank}/cpu"
    everywhere = [f"rank:{r}/cpu" for r in range(world)]
    rows = sharded.ChunkShardingSpec(0, everywhere)
    rows_of_torch = torch_spec.ChunkShardingSpec(0, list(everywhere))
    ours, theirs = sharded.ShardMetadata, TorchShardMetadata
    part = torch.ones(1, 2)

    def shards(side: Any, metadata: Any, tensors: list[torch.Tensor], offsets: list[list[int]], of: str = here) -> Any:
        return [side.Shard(t, metadata(o, list(t.shape), of)) for t, o in zip(tensors, offsets, strict=True)]

    def both(call: Callable[[Any, Any], object]) -> list[Callable[[], object]]:
        return [lambda: call(sharded, ours), lambda: call(torch_sharded, theirs)]

    def with_spec(call: Callable[[Any, Any], object]) -> list[Callable[[], object]]:
        return [lambda: call(sharded, rows), lambda: call(torch_sharded, rows_of_torch)]

    other = (rank + 1) % world
    table: list[tuple[str, type[Exception], type[Exception] | None, list[Callable[[], object]]]] = [
        # What; sherd's class; torch's, None where torch has no error; both calls.
        *((f"device {text!r}", ValueError, ValueError,
           [lambda text=text: sharded.RemoteDevice(text), lambda text=text: dist._remote_device(text)])
          for text in ("rank:x/cpu", "a/b/c", "", "/cpu", "name:1/cpu", "rank:-1/cpu")),
        # torch's own text about devices there.
        ("unknown device", ValueError, RuntimeError,
         [lambda: sharded.RemoteDevice("rank:0/abacus"), lambda: dist._remote_device("rank:0/abacus")]),
        ("offsets and sizes", ValueError, ValueError, both(lambda side, md: md([0], [1, 2], here))),
        ("negative offset", ValueError, ValueError, both(lambda side, md: md([-1], [1], here))),
        ("negative size", ValueError, ValueError, both(lambda side, md: md([0], [-1], here))),
        ("shard and tensor", ValueError, ValueError, both(lambda side, md: side.Shard(part, md([0, 0], [2, 2], here)))),
        ("device of a shard", ValueError, ValueError,
         both(lambda side, md: side.Shard(part, md([0, 0], [1, 2], "rank:0/meta")))),
        ("no shards", ValueError, ValueError,
         [lambda: sharded.EnumerableShardingSpec([]), lambda: torch_spec.EnumerableShardingSpec([])]),
        ("shards of different ndim", ValueError, ValueError,
         [lambda: sharded.EnumerableShardingSpec([ours([0], [1], here), ours([0, 1], [1, 1], here)]),
          lambda: torch_spec.EnumerableShardingSpec([theirs([0], [1], here), theirs([0, 1], [1, 1], here)])]),
        ("overlap", ValueError, ValueError,
         [lambda: sharded.EnumerableShardingSpec([ours([0, 0], [2, 2], here), ours([1, 1], [2, 2], here)]),
          lambda: torch_spec.EnumerableShardingSpec([theirs([0, 0], [2, 2], here), theirs([1, 1], [2, 2], here)])]),
        ("not all covered", ValueError, ValueError,
         [lambda: sharded.zeros(sharded.EnumerableShardingSpec([ours([0], [1], "rank:0/cpu")]), 2),
          lambda: torch_sharded.zeros(torch_spec.EnumerableShardingSpec([theirs([0], [1], "rank:0/cpu")]), 2)]),
        ("named dim", TypeError, NotImplementedError,
         [lambda: sharded.ChunkShardingSpec("N", everywhere),  # type: ignore[arg-type]
          lambda: torch_spec.ChunkShardingSpec("N", list(everywhere))]),
        ("dim", ValueError, ValueError,
         [lambda: sharded.zeros(sharded.ChunkShardingSpec(2, everywhere), 2, 2),
          lambda: torch_sharded.zeros(torch_spec.ChunkShardingSpec(2, list(everywhere)), 2, 2)]),
        ("scalar", ValueError, ValueError, with_spec(lambda side, spec: side.zeros(spec, []))),
        ("rank outside", ValueError, ValueError,
         [lambda: sharded.zeros(sharded.ChunkShardingSpec(0, [f"rank:{world}/cpu"]), 2),
          lambda: torch_sharded.zeros(torch_spec.ChunkShardingSpec(0, [f"rank:{world}/cpu"]), 2)]),
        ("worker without RPC", RuntimeError, RuntimeError,
         [lambda: sharded.zeros(sharded.ChunkShardingSpec(0, ["worker0/cpu"]), 2),
          lambda: torch_sharded.zeros(torch_spec.ChunkShardingSpec(0, ["worker0/cpu"]), 2)]),
        # Something of the wrong type is a TypeError in sherd, everywhere.
        ("no spec", TypeError, ValueError,
         [lambda: sharded.zeros("rows", 2), lambda: torch_sharded.zeros("rows", 2)]),  # type: ignore[arg-type]
        ("size", TypeError, TypeError, with_spec(lambda side, spec: side.zeros(spec, "a", 2))),
        ("layout", ValueError, ValueError, with_spec(lambda side, spec: side.zeros(spec, 4, layout=torch.sparse_coo))),
        ("memory format", ValueError, ValueError,
         with_spec(lambda side, spec: side.zeros(spec, 4, memory_format=torch.channels_last))),
        ("local_tensor of several", NotImplementedError, NotImplementedError,
         [lambda: sharded.local_tensor(sharded.zeros(sharded.ChunkShardingSpec(0, [here] * 2), 4)),
          lambda: torch_sharded.zeros(torch_spec.ChunkShardingSpec(0, [here] * 2), 4).local_tensor()]),
        ("nobody has a shard", ValueError, ValueError,
         both(lambda side, md: side.init_from_local_shards([], 4, 2))),
        ("shards do not cover", ValueError, ValueError,
         both(lambda side, md: side.init_from_local_shards(shards(side, md, [part], [[rank, 0]]), world + 1, 2))),
        ("shards overlap", ValueError, ValueError,
         both(lambda side, md: side.init_from_local_shards(shards(side, md, [part] * 2, [[0, 0]] * 2), world, 2))),
        ("shards of two dtypes", ValueError, ValueError,
         both(lambda side, md: side.init_from_local_shards(
             shards(side, md, [part, part.double()], [[2 * rank, 0], [2 * rank + 1, 0]]), 2 * world, 2))),
        ("shard not contiguous", ValueError, ValueError,
         both(lambda side, md: side.init_from_local_shards(
             shards(side, md, [torch.ones(2, 3).t()], [[3 * rank, 0]]), 3 * world, 2))),
        ("number of shards", RuntimeError, RuntimeError,
         [lambda: sharded.init_from_local_shards_and_global_metadata([], rows.build_metadata([world])),
          lambda: TorchShardedTensor._init_from_local_shards_and_global_metadata(
              [], rows_of_torch.build_metadata(torch.Size([world]), torch_sharded.TensorProperties()))]),
        ("not contiguous", ValueError, ValueError,
         [lambda: sharded.shard_tensor(torch.ones(2 * world, 3).t(), rows),
          lambda: torch_shard_tensor(torch.ones(2 * world, 3).t(), rows_of_torch)]),
        ("scopes that nest", RuntimeError, RuntimeError, [nested_scopes, nested_scopes_of_torch]),
    ]  # fmt: skip
    if world > 1:
        odd = torch.float64 if rank else torch.float32
        table += [
            ("shard of another rank", ValueError, ValueError,
             both(lambda side, md: side.init_from_local_shards(
                 shards(side, md, [part], [[rank, 0]], f"rank:{other}/cpu"), world, 2))),
            ("dtypes between ranks", ValueError, ValueError,
             both(lambda side, md: side.init_from_local_shards(
                 shards(side, md, [part.to(odd)], [[rank, 0]]), world, 2))),
            ("gradients between ranks", ValueError, ValueError,
             both(lambda side, md: side.init_from_local_shards(
                 shards(side, md, [part.clone().requires_grad_(rank == 0)], [[rank, 0]]), world, 2))),
            ("sizes between ranks", ValueError, ValueError,
             both(lambda side, md: side.init_from_local_shards(
                 shards(side, md, [part], [[rank, 0]]), world if rank else world + 1, 2))),
            ("sources between ranks", ValueError, ValueError,
             [lambda: sharded.shard_tensor(torch.ones(world), rows, int(rank == 0)),
              lambda: torch_shard_tensor(torch.ones(world), rows_of_torch, int(rank == 0))]),
            ("specs between ranks", ValueError, ValueError,
             [lambda: sharded.shard_tensor(torch.ones(world, world), sharded.ChunkShardingSpec(rank % 2, everywhere)),
              lambda: torch_shard_tensor(
                  torch.ones(world, world), torch_spec.ChunkShardingSpec(rank % 2, list(everywhere)))]),
        ]  # fmt: skip
    for what, our_class, their_class, (our_call, their_call) in table:
        same(class_of_error(our_call), our_class, what)
        same(class_of_error(their_call), their_class, f"{what}, by torch")


def class_of_error(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def nested_scopes() -> None:
    group = sherd.init().group()
    with sharded.load_with_process_group(group), sharded.load_with_process_group(group):
        pass


def nested_scopes_of_torch() -> None:
    with torch_scope(dist.group.WORLD), torch_scope(dist.group.WORLD):
        pass


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


# Where torch is wrong, raises or hangs: it is not called, and sherd is compared with the whole tensor -----------------


def rows_over(ranks: list[int], dim: int = 0) -> sharded.ShardingSpec:
    return sharded.ChunkShardingSpec(dim, [f"rank:{rank}/cpu" for rank in ranks])


def known_gather_keeps_the_dtype(rank: int, world: int) -> None:
    """torch sends in the default dtype unless told: 2**24 + 1 comes back as 2**24."""
    for whole in (torch.arange(5) + 2**24 + 1, torch.arange(5, dtype=torch.float64) / 3, torch.randn(
            3, 2, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))):  # fmt: skip
        out = gathered(sharded.shard_tensor(whole, rows_over(list(range(world)))), rank)
        if rank == 0:
            same_data(out, whole, whole.dtype)
    # Asked for, it is done: values travel in that dtype, and are converted to that of out.
    out = torch.empty(5, dtype=torch.int64) if rank == 0 else None
    sharded.gather(sharded.shard_tensor(torch.arange(5) + 2**24 + 1, rows_over([0])), 0, out, dtype=torch.float32)
    if out is not None:
        same(out[0].item(), 2**24, "through float32")
    same(class_of_error(lambda: sharded.gather(sharded.zeros(rows_over([0]), 4), 0, out, enforce_dtype=True)),
         ValueError, "another dtype than enforced")


def known_gather_errors_are_everybodys(rank: int, world: int) -> None:
    """torch's rank that gathers raises alone, and the others wait for it."""
    x = sharded.zeros(rows_over(list(range(world))), 4, 2)
    wrong = torch.empty(3, 2) if rank == 0 else None
    same(class_of_error(lambda: sharded.gather(x, 0, wrong)), ValueError, "wrong size")
    same(class_of_error(lambda: sharded.gather(x, 0)), ValueError, "no out")
    same(class_of_error(lambda: sharded.gather(x, world, wrong)), ValueError, "nobody gathers")
    if world > 1:
        same(class_of_error(lambda: sharded.gather(x, 0, torch.empty(4, 2))), ValueError, "more than one out")
        same(class_of_error(lambda: sharded.gather(x, int(rank > 0), torch.empty(4, 2))), ValueError, "dst differs")


def known_subgroups(rank: int, world: int) -> None:
    """torch takes the world's ranks for places in the group."""
    if world < 3:
        return
    members = [world - 1, 1]
    group = dist.new_group(members)
    for options in ({"ranks": sorted(members)}, {"process_group": group}):
        if rank not in members and "process_group" in options:
            continue  # it has no such group
        spec = rows_over(members)
        x = sharded.full(spec, (5, 2), rank + 1, **options)
        same(sharded.group(x) is None, rank not in members, "outside")
        if rank in members:
            same(sorted(sharded.group(x).ranks), sorted(members), options)
            place = sorted(members).index(rank)
            out = torch.empty(5, 2, dtype=torch.int64) if place == 1 else None
            sharded.gather(x, 1, out)
            if out is not None:
                same(out[:, 0].tolist(), [world] * 3 + [2] * 2, options)
            moved = sharded.reshard(x, rows_over([1, world - 1], 1))
            same(sharded.local_tensor(moved)[:, 0].tolist(), [world] * 3 + [2] * 2, options)
    if rank in members:
        with sharded.load_with_process_group(group):
            same(sorted(sharded.group(sharded.zeros(rows_over(members), 2)).ranks), sorted(members), "scope")


def known_cycles(rank: int, world: int) -> None:
    """torch's reshard along the same dim is right for swaps alone."""
    whole = torch.arange(3.0 * world).reshape(3 * world // 1, 1).repeat(1, 2)
    before = list(range(world))
    for step in range(world):
        after = [(r + step) % world for r in before]
        x = sharded.shard_tensor(whole, rows_over(before))
        moved = sharded.local_tensor(sharded.reshard(x, rows_over(after)))
        place = after.index(rank)
        same_data(moved, whole[3 * place : 3 * place + 3], f"cycle by {step}")


def known_uneven_reshard(rank: int, world: int) -> None:
    """Gloo's all_to_all wants equal sizes of all."""
    whole = torch.arange(20.0).reshape(5, 4)
    x = sharded.shard_tensor(whole, rows_over(list(range(world))))
    moved = sharded.reshard(x, rows_over(list(range(world)), 1))
    same_as_whole(moved, Case([5, 4], whole.dtype, chunk_boxes([5, 4], 1, world), list(range(world)), 1), whole, rank,
                  "uneven")


def known_more_ranks_than_rows(rank: int, world: int) -> None:
    """torch's offsets lie past the end, and its source dies while the others wait."""
    whole = torch.ones(1, 2)
    x = sharded.shard_tensor(whole, rows_over(list(range(world))))
    same([shard.shard_offsets for shard in sharded.metadata(x).shards_metadata], [[0, 0]] + [[1, 0]] * (world - 1), "")
    same(sharded.local_tensor(x).shape, (int(rank == 0), 2), "rows")
    out = gathered(x, rank)
    if rank == 0:
        same_data(out, whole, "gather")
    # torch makes such tensors, with offsets past the end; here they end at the end.
    theirs = torch_sharded.ones(torch_spec.ChunkShardingSpec(0, [f"rank:{r}/cpu" for r in range(world)]), 1, 2)
    out = gathered(sharded.from_torch(theirs), rank)
    if rank == 0:
        same_data(out, whole, "from_torch")


def known_equal(rank: int, world: int) -> None:
    """torch's equal and allclose want an accelerator."""
    spec = rows_over(list(range(world)))
    x, y = sharded.ones(spec, 5, 2), sharded.ones(spec, 5, 2)
    same((torch.equal(x, y), torch.allclose(x, y)), (True, True), "equal")
    if rank == world - 1:
        for shard in sharded.local_shards(y):
            shard.tensor.add_(1e-7)
    differs = 5 > -(-5 // world) * (world - 1)  # the last rank has rows
    same((torch.equal(x, y), torch.allclose(x, y)), (not differs, True), "differs on one rank")


def known_like(rank: int, world: int) -> None:
    """torch's *_like drop the dtype and the group."""
    x = sharded.ones(rows_over(list(range(world))), 5, dtype=torch.float64)
    for like in (torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like, torch.randn_like):
        y = like(x)
        same((y.dtype, sharded.sharding_spec(y)), (torch.float64, sharded.sharding_spec(x)), like.__name__)


def known_full(rank: int, world: int) -> None:
    """torch's full does not look at the value."""
    spec = rows_over(list(range(world)))
    for value in (7, 2.5, True, 1j):
        same(sharded.full(spec, (3,), value).dtype, torch.full((3,), value).dtype, value)


def known_random(rank: int, world: int) -> None:
    """torch's ranks draw the same numbers for different places."""
    sherd.manual_seed(3)
    drawn = [sharded.rand(rows_over(list(range(world))), 7, 3), sharded.randn(rows_over(list(range(world)), 1), 7, 3)]
    generator = sherd.Generator(3)
    expected = [torch.rand(7, 3, generator=generator), torch.randn(7, 3, generator=generator)]
    for ours, one in zip(drawn, expected, strict=True):
        out = gathered(ours, rank)
        if rank == 0:
            same_data(out, one, "drawn by place")


def known_scalar(rank: int, world: int) -> None:
    """torch can make one, and not gather it."""
    mine = [sharded.Shard(torch.tensor(4.0), sharded.ShardMetadata([], [], f"rank:{rank}/cpu"))] if rank == 0 else []
    out = gathered(sharded.init_from_local_shards(mine, []), rank)
    if rank == 0:
        same_data(out, torch.tensor(4.0), "scalar")


def known_rank_without_chunk(rank: int, world: int) -> None:
    """torch's shard_tensor wants every rank among the placements, its reshard one shard for each."""
    whole = torch.arange(6.0).reshape(3, 2)
    x = sharded.shard_tensor(whole, rows_over([0, 0, world - 1]), world - 1)
    same(len(sharded.local_shards(x)), 2 * (rank == 0) + (rank == world - 1), "shards")
    out = gathered(sharded.reshard(x, rows_over([world - 1], 1)), rank)
    if rank == 0:
        same_data(out, whole, "gathered")


COMPARED = [metadata_of_specs, factories, shards_and_gather, open_sizes, cut_by_one_rank, reshards, errors]
KNOWN = [
    known_gather_keeps_the_dtype,
    known_gather_errors_are_everybodys,
    known_subgroups,
    known_cycles,
    known_uneven_reshard,
    known_more_ranks_than_rows,
    known_equal,
    known_like,
    known_full,
    known_random,
    known_scalar,
    known_rank_without_chunk,
]


class Differential(unittest.TestCase):
    """torch and sherd in the same processes, world by world."""

    def run_all(self, world: int) -> None:
        in_world(world, lambda rank, size: run_each(rank, size, [arithmetic, *COMPARED] if size == 1 else COMPARED))

    def test_one_rank(self) -> None:
        self.run_all(1)

    def test_two_ranks(self) -> None:
        self.run_all(2)

    def test_three_ranks(self) -> None:
        self.run_all(3)

    def test_four_ranks(self) -> None:
        self.run_all(4)


class Known(unittest.TestCase):
    """What torch is known to do wrong."""

    def test_sherd_is_right(self) -> None:
        for world in (1, 3, 4):
            in_world(world, lambda rank, size: run_each(rank, size, KNOWN))


def run_each(rank: int, world: int, functions: list[Callable[[int, int], None]]) -> None:
    for function in functions:
        try:
            function(rank, world)
        except Exception as error:
            error.add_note(f"in {function.__name__}") if hasattr(error, "add_note") else None
            raise


if __name__ == "__main__":
    unittest.main()
