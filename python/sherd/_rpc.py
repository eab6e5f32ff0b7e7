"""Tensors of other ranks, fetched when they are wanted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _C
from ._world import init


def init_rpc(*, name: str = "", timeout: float | None = None, threads: int = 4) -> None:
    """Lets the ranks fetch tensors from each other. Every rank calls it. `name` is what this rank is called, "worker" and
    its number unless given; `timeout` the seconds that a fetch waits for the owner, as long as the world waits for a
    rank unless given; `threads` of this rank answer the others.

    >>> import torch, sherd
    >>> def fetch_from_next(rank):
    ...     sherd.init_rpc()
    ...     shared = sherd.share_tensors([torch.full((2,), rank)])
    ...     value = shared[(rank + 1) % 3][0].to_here()
    ...     sherd.shutdown_rpc()
    ...     return value.tolist()
    >>> sherd.spawn(3, fetch_from_next)
    [[1, 1], [2, 2], [0, 0]]
    """
    _C.init_rpc(init(), name, timeout, threads)


def shutdown_rpc() -> None:
    """Ends it. Every rank calls it; it returns when the fetches of all ranks are over."""
    _C.shutdown_rpc(init())


def has_rpc() -> bool:
    """True between init_rpc and shutdown_rpc.

    >>> import sherd
    >>> sherd.has_rpc()
    False
    """
    return _C.has_rpc(init())


def rpc_names() -> list[str]:
    """The ranks' names, by rank."""
    return _C.rpc_names(init())


def share_tensors(tensors: Sequence[torch.Tensor], group: _C.Group | None = None) -> list[list[_C.RemoteTensor]]:
    """Every member of the group, all ranks unless given, shares some tensors or none and gets handles to those of all
    members, by their place in the group. The tensors are not copied: `handle.to_here()` fetches what the owner has by
    then. A rank shares them for as long as it keeps any handle of this call.
    """
    world = init()
    return _C.share_tensors(world.group() if group is None else group, world, list(tensors))
