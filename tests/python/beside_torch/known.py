"""Where torch is wrong, raises or hangs: it is not called, and sherd is compared with the whole tensor."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor as torch_sharded
from torch.distributed._shard import sharding_spec as torch_spec

import sherd
from beside_torch.cases import Case, chunk_boxes
from beside_torch.same import class_of_error, gathered, same, same_as_whole, same_data
from sherd import sharded


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
