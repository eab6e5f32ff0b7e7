"""Between ShardedTensors of sherd and of torch.distributed, without copying: the shards are the same tensors."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from . import _C
from ._errors import error_text
from ._sharded_arguments import check_sharded, is_torch_sharded, spec_of_torch
from ._world import init, use_process_group


def _within(metadata: Any, size: Any) -> _C.sharded.ShardMetadata:
    """torch lets chunks without rows begin past the tensor's end."""
    offsets = [min(offset, n) for offset, n in zip(metadata.shard_offsets, size)]
    return _C.sharded.ShardMetadata(offsets, metadata.shard_sizes, str(metadata.placement))


def _ranks_of_group(tensor: Any, shards: list[_C.sharded.ShardMetadata]) -> list[int]:
    """A rank outside the group does not know it: the ranks that hold something will do, for it takes no part."""
    group = tensor._process_group
    if isinstance(group, torch.distributed.ProcessGroup):
        use_process_group(init(), group)
        return torch.distributed.get_process_group_ranks(group)
    return sorted({rank for shard in shards if shard.placement and (rank := shard.placement.rank()) is not None})


def from_torch(tensor: Any) -> torch.Tensor:
    """A ShardedTensor of sherd of one of torch.distributed, with the same shards. Nothing is sent.

    The process group of the tensor is the one that sherd talks through.
    """
    if not is_torch_sharded(tensor):
        raise TypeError(
            error_text("from_torch", "no ShardedTensor of torch.distributed", "sherd.sharded.shard_tensor(tensor, spec)",
                       given=type(tensor).__name__)
        )
    init()
    theirs = tensor.metadata()
    size = list(theirs.size)
    shards = [_within(shard, size) for shard in theirs.shards_metadata]
    properties = theirs.tensor_properties
    local = [_C.sharded.Shard(shard.tensor, _within(shard.metadata, size)) for shard in tensor.local_shards()]
    with torch._C.DisableTorchFunctionSubclass():  # which would warn
        requires_grad = tensor.requires_grad  # it may have changed since the properties were written down
    metadata = _C.sharded.ShardedTensorMetadata(
        shards, size, _C.sharded.TensorProperties(properties.dtype, properties.layout, requires_grad,
                                                  torch.contiguous_format, properties.pin_memory)
    )
    options = _C.sharded.GroupOptions(_ranks_of_group(tensor, shards), None, False)
    spec = spec_of_torch(tensor.sharding_spec())
    if isinstance(spec, _C.sharded.EnumerableShardingSpec):
        spec = None  # the shards say it
    return _C.sharded.init_from_local_shards_and_global_metadata(local, metadata, options, spec)


def _process_group(ranks: list[int]) -> Any:
    from torch.distributed import distributed_c10d as c10d

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ValueError(
            error_text("to_torch", "torch.distributed is not initialised, and its ShardedTensor needs it",
                       "torch.distributed.init_process_group() before the first call of sherd", ranks=ranks)
        )
    if ranks != sorted(ranks):
        raise ValueError(
            error_text("to_torch", "the ranks of the group are not in order, as torch.distributed has them",
                       "ranks=sorted(ranks) where the tensor is made", ranks=ranks)
        )
    if torch.distributed.get_rank() not in ranks:
        return torch.distributed.GroupMember.NON_GROUP_MEMBER
    for group, places in c10d._world.pg_group_ranks.items():
        if sorted(places, key=places.__getitem__) == ranks:
            return group
    return torch.distributed.new_group(ranks, use_local_synchronization=True)


def _metadata_to_torch(metadata: _C.sharded.ShardMetadata) -> Any:
    from torch.distributed._shard.metadata import ShardMetadata

    return ShardMetadata(metadata.shard_offsets, metadata.shard_sizes, str(metadata.placement))


def _spec_to_torch(spec: _C.sharded.ShardingSpec, shards: list[Any]) -> Any:
    from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
    from torch.distributed._shard.sharding_spec.chunk_sharding_spec import ChunkShardingSpec

    if isinstance(spec, _C.sharded.ChunkShardingSpec):
        return ChunkShardingSpec(spec.dim, [str(placement) for placement in spec.placements])
    return EnumerableShardingSpec(shards)


def to_torch(tensor: torch.Tensor) -> Any:
    """The ShardedTensor of torch.distributed with the same shards. Nothing is sent.

    torch's has no history of operators: a tensor that was computed from one with a gradient is refused.
    """
    check_sharded("to_torch", tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise ValueError(
            error_text("to_torch", "the tensor has a gradient to compute, which torch's ShardedTensor cannot pass on",
                       "sherd.sharded.to_torch(tensor.detach())", tensor=_C.sharded.describe(tensor))
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about the class itself
        from torch.distributed._shard.sharded_tensor.api import ShardedTensor
        from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
        from torch.distributed._shard.sharded_tensor.shard import Shard

        group = _process_group(_C.sharded.ranks(tensor))
        ours = _C.sharded.metadata(tensor)
        properties = ours.tensor_properties
        shards = [_metadata_to_torch(shard) for shard in ours.shards_metadata]
        local = []
        for shard in _C.sharded.local_shards(tensor):
            data = shard.tensor
            if data.requires_grad != tensor.requires_grad:
                data = data.detach().requires_grad_(tensor.requires_grad)
            local.append(Shard(data, _metadata_to_torch(shard.metadata)))
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            local,
            ShardedTensorMetadata(
                shards,
                ours.size,
                TensorProperties(properties.dtype, properties.layout, properties.requires_grad,
                                 properties.memory_format, properties.pin_memory),
            ),
            process_group=group,
            sharding_spec=_spec_to_torch(_C.sharded.sharding_spec(tensor), shards),
        )
