"""The same mistakes on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard import _shard_tensor as torch_shard_tensor
from torch.distributed._shard import sharded_tensor as torch_sharded
from torch.distributed._shard import sharding_spec as torch_spec
from torch.distributed._shard.api import load_with_process_group as torch_scope
from torch.distributed._shard.metadata import ShardMetadata as TorchShardMetadata
from torch.distributed._shard.sharded_tensor import ShardedTensor as TorchShardedTensor

import sherd
from beside_torch.same import class_of_error, same
from sherd import sharded


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


def nested_scopes() -> None:
    group = sherd.init().group()
    with sharded.load_with_process_group(group), sharded.load_with_process_group(group):
        pass


def nested_scopes_of_torch() -> None:
    with torch_scope(dist.group.WORLD), torch_scope(dist.group.WORLD):
        pass


