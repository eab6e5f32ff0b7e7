"""LocalShardsWrappers: several rectangles of one rank as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _C
from ._arguments import check_tensor

ChunkMetadata = _C.local_shards.ChunkMetadata
TensorStorageMetadata = _C.local_shards.TensorStorageMetadata
ShardIndex = _C.local_shards.ShardIndex
WriteItem = _C.local_shards.WriteItem
Checkpointable = _C.local_shards.Checkpointable


def LocalShardsWrapper(
    local_shards: Sequence[torch.Tensor],
    local_offsets: Sequence[Sequence[int]],
    *,
    global_size: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Several rectangles of one rank as one tensor, not copied. `local_offsets` say where each begins in the whole.

    An ordinary torch.Tensor: pointwise operators and optimizers work on it shard by shard, and `sherd.from_local` makes
    a DTensor of which it is this rank's part. A rank without shards gives the global size, and the dtype.

    >>> import torch, sherd
    >>> x = sherd.LocalShardsWrapper([torch.ones(4, 2), torch.ones(4, 1)], [(0, 0), (0, 7)])
    >>> x.shape
    torch.Size([4, 3])
    >>> [shard.sum().item() for shard in sherd.local_shards(x * 2)]
    [16.0, 8.0]
    >>> sherd.local_offsets(x)
    [[0, 0], [0, 7]]
    """
    offsets = [list(offset) for offset in local_offsets]
    size = None if global_size is None else list(global_size)
    return _C.local_shards.make(list(local_shards), offsets, size, dtype, device)


def is_local_shards(tensor: object) -> bool:
    """True for a LocalShardsWrapper of sherd."""
    return isinstance(tensor, torch.Tensor) and _C.local_shards.is_local_shards(tensor)


def local_shards(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The shards themselves, in the order in which they were given."""
    return _C.local_shards.shards(tensor)


def local_sizes(tensor: torch.Tensor) -> list[list[int]]:
    """The sizes of the shards."""
    return _C.local_shards.sizes(tensor)


def local_offsets(tensor: torch.Tensor) -> list[list[int]]:
    """Where the shards begin in the whole tensor."""
    return _C.local_shards.offsets(tensor)


def local_chunks(tensor: torch.Tensor) -> list[ChunkMetadata]:
    """Where the shards lie in the whole tensor: offsets and sizes of each.

    >>> import torch, sherd
    >>> sherd.local_chunks(sherd.LocalShardsWrapper([torch.ones(4, 2), torch.ones(4, 1)], [(0, 0), (0, 7)]))
    [ChunkMetadata([0:4, 0:2]), ChunkMetadata([0:4, 7:8])]
    """
    return _C.local_shards.chunks(tensor)


def storage_metadata(tensor: torch.Tensor) -> TensorStorageMetadata:
    """All that is kept of a LocalShardsWrapper beside its data: `properties`, `size` and `chunks`.

    The size is the global one where that is known, else the wrapper's own.
    """
    return _C.local_shards.storage_metadata(tensor)


def checkpointable(tensor: torch.Tensor) -> Checkpointable:
    """What a checkpoint asks of a tensor: which boxes this rank holds, what it would write, and the memory of one box.

    Of a DTensor, a ShardedTensor, a LocalShardsWrapper or a plain tensor. `write_items(name)` has one WriteItem per
    chunk that this rank writes (of a replicated tensor the first copy's ranks do; `every_copy=True` for all),
    `chunk_list()` the chunks that it holds, `shard(ShardIndex(name, offsets))` the memory of one, not copied, and
    `copies()` the ranks that hold the same. Nothing is sent.

    >>> import torch, sherd
    >>> with sherd.fake_world(1, 2):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     x = sherd.zeros(5, 2, device_mesh=mesh, placements=[sherd.Shard(0)])
    ...     held = sherd.checkpointable(x)
    ...     held.chunk_list(), held.write_items("x"), held.shard(sherd.ShardIndex("x", [3, 0])).shape
    ([ChunkMetadata([3:5, 0:2])], [WriteItem(x[3:5, 0:2] of [5, 2])], torch.Size([2, 2]))
    """
    return _C.local_shards.checkpointable(check_tensor("checkpointable", tensor))


def is_empty_shard(tensor: torch.Tensor) -> bool:
    """True where no shard has an element."""
    return _C.local_shards.is_empty_shard(tensor)


def size_bytes(tensor: torch.Tensor) -> int:
    """The bytes of the shards' elements."""
    return _C.local_shards.size_bytes(tensor)


# The classes are of the package, for people.
for _class in (ChunkMetadata, TensorStorageMetadata, ShardIndex, WriteItem, Checkpointable):
    _class.__module__ = "sherd"
