"""Scopes of parallel training: `with` blocks in which this thread's operators or modules behave otherwise."""

from __future__ import annotations

import torch

from . import _C
from ._arguments import mesh_or_current
from ._errors import error_text


class LossParallel(_C.LossParallel):
    """In the block, a loss that would gather the classes of its sharded logits is an error that says what to call.

    cross_entropy, nll_loss, log_softmax and softmax never gather them, inside such a block and outside.

    >>> import torch, sherd
    >>> def loss(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     logits = sherd.distribute_tensor(torch.zeros(4, 10), mesh, [sherd.Shard(1)])
    ...     with sherd.LossParallel():
    ...         return torch.nn.functional.cross_entropy(logits, torch.arange(4)).item()
    >>> round(sherd.spawn(2, loss)[0], 4)
    2.3026
    """


class ShardedInit(_C.ShardedInit):
    """In the block, the floating-point tensors that modules make are DTensors, Shard(0) over every axis of the mesh.

    A model that no rank could hold is born in parts; `parallelize_module` and `fully_shard` take it from there.

    >>> import torch, sherd
    >>> def build(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     with sherd.ShardedInit(mesh):
    ...         layer = torch.nn.Linear(4, 8)
    ...     return sherd.to_local(layer.weight).shape
    >>> sherd.spawn(2, build)[0]
    torch.Size([4, 4])
    """


class ContextParallel(_C.ContextParallel):
    """In the block, attention on DTensors [batch, heads, length, width] whose dim 2 is cut by `axis` does not gather the
    sequence. `axis` is a mesh of one axis: `mesh["cp"]`. `method` is "ring" or "all_to_all".

    >>> import torch, sherd
    >>> def attend(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("cp",))
    ...     q = sherd.context_parallel_shard(torch.ones(1, 2, 8, 4), mesh, 2)
    ...     with sherd.ContextParallel(mesh):
    ...         out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    ...     return sherd.full_tensor(out).sum().item()
    >>> sherd.spawn(2, attend)
    [64.0, 64.0]
    """

    def __init__(self, axis: _C.DeviceMesh | None = None, *, method: str = "ring") -> None:
        if method not in ("ring", "all_to_all"):
            raise ValueError(error_text("ContextParallel", "no such method", '"ring" or "all_to_all"', method=repr(method)))
        super().__init__(mesh_or_current("ContextParallel", axis), method == "ring")


def context_parallel_shard(tensor: torch.Tensor, axis: _C.DeviceMesh, dim: int) -> torch.Tensor:
    """The tensor with `dim` cut over `axis` so that causal attention gives every rank equal work."""
    return _C.context_parallel_shard(tensor, axis, dim)
