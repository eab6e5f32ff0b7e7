"""What users pass to sherd.sharded, checked and brought to one form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from . import _C
from ._arguments import check_tensor
from ._errors import error_text
from ._world import init, use_process_group


def torch_shard(module: str) -> Any:
    """A module of torch.distributed._shard, or None where nobody has imported it: then nothing is of its classes."""
    return sys.modules.get(f"torch.distributed._shard.{module}")


def is_torch_sharded(value: object) -> bool:
    """True for a ShardedTensor of torch.distributed; imports nothing."""
    module = torch_shard("sharded_tensor")
    return module is not None and isinstance(value, module.ShardedTensor)


def check_sharded(operation: str, tensor: object) -> torch.Tensor:
    if is_torch_sharded(tensor):
        raise TypeError(
            error_text(operation, "this is a ShardedTensor of torch.distributed", "sherd.sharded.from_torch(tensor)",
                       given=type(tensor).__name__)
        )
    tensor = check_tensor(operation, tensor)
    if not _C.sharded.is_sharded_tensor(tensor):
        help = "sherd.sharded.shard_tensor(tensor, spec)"
        if _C.is_dtensor(tensor):
            help = "sherd.sharded.from_dtensor(tensor)"
        raise ValueError(error_text(operation, "not a ShardedTensor", help, tensor=_C.describe(tensor)))
    return tensor


def _shard_of_torch(shard: Any) -> _C.sharded.ShardMetadata:
    placement = None if shard.placement is None else str(shard.placement)
    return _C.sharded.ShardMetadata(shard.shard_offsets, shard.shard_sizes, placement)


def spec_of_torch(spec: Any) -> _C.sharded.ShardingSpec | None:
    """The same spec of sherd; None where there is none."""
    module = torch_shard("sharding_spec")
    if module is not None and isinstance(spec, module.ChunkShardingSpec):
        return _C.sharded.ChunkShardingSpec(spec.dim, [str(placement) for placement in spec.placements])
    if module is not None and isinstance(spec, module.EnumerableShardingSpec):
        return _C.sharded.EnumerableShardingSpec([_shard_of_torch(shard) for shard in spec.shards])
    return None


def checked_spec(operation: str, spec: Any) -> _C.sharded.ShardingSpec:
    """A spec of sherd. Those of torch.distributed are fine, too."""
    if isinstance(spec, _C.sharded.ShardingSpec):
        return spec
    converted = spec_of_torch(spec)
    if converted is None:
        raise TypeError(
            error_text(operation, "this is no sharding spec",
                       'sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])',
                       given=f"{spec!r} ({type(spec).__name__})")
        )
    return converted


def checked_shards(operation: str, shards: Any) -> list[_C.sharded.Shard]:
    """A list of Shards. Those of torch.distributed are fine, too."""
    module = torch_shard("sharded_tensor")
    checked: list[_C.sharded.Shard] = []
    for shard in shards if isinstance(shards, Sequence) else [shards]:
        if module is not None and isinstance(shard, module.Shard):
            shard = _C.sharded.Shard(shard.tensor, _shard_of_torch(shard.metadata))
        if not isinstance(shard, _C.sharded.Shard):
            raise TypeError(
                error_text(operation, "a list of Shards is needed",
                           "sherd.sharded.Shard.from_tensor_and_offsets(tensor, offsets, rank)",
                           given=f"{shard!r} ({type(shard).__name__})")
            )
        checked.append(shard)
    return checked


def torch_group(operation: str, group: Any) -> _C.Group:
    """A group of sherd, or the one of the same ranks that talks through a process group of torch.distributed."""
    if isinstance(group, _C.Group):
        return group
    if not (torch.distributed.is_available() and isinstance(group, torch.distributed.ProcessGroup)):
        raise TypeError(
            error_text(operation, "this is no group", "world.group([0, 1]), or torch.distributed.new_group([0, 1])",
                       given=f"{group!r} ({type(group).__name__})")
        )
    world = init()
    use_process_group(world, group)
    return world.group(torch.distributed.get_process_group_ranks(group))


def group_options(
    operation: str, process_group: Any = None, ranks: Sequence[int] | None = None, init_rrefs: bool = False
) -> _C.sharded.GroupOptions:
    init()
    if process_group is not None and ranks is not None:
        raise ValueError(
            error_text(operation, "a group is given twice", "process_group=group, or ranks=[0, 1]",
                       process_group=process_group, ranks=ranks)
        )
    group = None if process_group is None else torch_group(operation, process_group)
    return _C.sharded.GroupOptions(None if ranks is None else list(ranks), group, init_rrefs)
