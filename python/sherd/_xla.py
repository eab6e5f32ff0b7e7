"""XLA's shardings, and meshes of XLA devices."""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import _C
from ._arguments import check_dtensor
from ._errors import error_text


def xla_sharding(tensor: torch.Tensor | _C.Layout) -> _C.XlaSharding:
    """How XLA says which device holds which part of a DTensor, or of a layout.

    Its text is HLO's, its bytes are those of XLA's protobuf message `OpSharding`; `XlaSharding(text)` and
    `XlaSharding.from_bytes(bytes)` read them, and `layout(mesh, shape)` brings placements back. Raises ValueError where
    XLA has no sharding that gives every device just what its rank holds.

    >>> import sherd
    >>> mesh = sherd.Mesh("[dp=2, tp=4]")
    >>> sharding = sherd.xla_sharding(sherd.Layout(mesh, (64, 32), [sherd.Shard(0), sherd.Replicate()]))
    >>> sharding
    XlaSharding("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    >>> sherd.XlaSharding.from_bytes(sharding.to_bytes()) == sharding
    True
    >>> sherd.XlaSharding("{devices=[4,2]<=[2,4]T(1,0)}").layout(mesh, (64, 32)).placements
    (Shard(1), Shard(0))
    """
    if isinstance(tensor, _C.Layout):
        return _C.xla_sharding(tensor)
    return _C.xla_sharding(_C.layout_of(check_dtensor("xla_sharding", tensor)))


def register_xla_bridge(
    mark: Callable[[torch.Tensor, _C.XlaSharding], torch.Tensor] | None,
    is_marked: Callable[[torch.Tensor], bool] | None = None,
    gather: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> None:
    """What `distribute_tensor`, `distribute_parameter_` and `distribute_module` do on a mesh of XLA devices, and
    `full_tensor` with what they return. docs/xla.md has the few lines for torch_xla.

    `mark(tensor, sharding)` gives the tensor to XLA and returns it, or another of its shape; `is_marked(tensor)` is true
    for what it has returned; `gather(tensor)` returns the whole value. `register_xla_bridge(None)` takes the bridge away.

    >>> import torch, sherd
    >>> marked = {}
    >>> def mark(tensor, sharding):
    ...     marked[tensor] = sharding
    ...     return tensor
    >>> sherd.register_xla_bridge(mark, lambda tensor: tensor in marked, lambda tensor: tensor.clone())
    >>> with sherd.fake_world(0, 1):
    ...     mesh = sherd.init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))
    ...     x = sherd.distribute_tensor(torch.ones(8, 8), mesh, [sherd.Shard(0), sherd.Shard(1)])
    >>> print(marked[x])
    {devices=[2,4]<=[8]}
    >>> sherd.register_xla_bridge(None)
    """
    for name, function in (("mark", mark), ("is_marked", is_marked), ("gather", gather)):
        if function is not None and not callable(function):
            raise TypeError(
                error_text("register_xla_bridge", f"{name} is no function",
                           "sherd.register_xla_bridge(mark, is_marked, gather)", given=type(function).__name__)
            )
    _C.register_xla_bridge(mark, is_marked, gather)
