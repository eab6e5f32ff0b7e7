"""LocalShardsWrappers: several rectangles of one rank as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _C


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


def is_empty_shard(tensor: torch.Tensor) -> bool:
    """True where no shard has an element."""
    return _C.local_shards.is_empty_shard(tensor)


def size_bytes(tensor: torch.Tensor) -> int:
    """The bytes of the shards' elements."""
    return _C.local_shards.size_bytes(tensor)
