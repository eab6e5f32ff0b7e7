"""Which ranks there are: threads of spawn(), those of torch.distributed, those that a launcher started, or one."""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import torch

from . import _C
from ._errors import error_text

T = TypeVar("T")


def spawn(
    n: int,
    fn: Callable[..., T],
    *args: Any,
    backend: str = "",
    timeout: float | None = None,
    check: bool = False,
) -> list[T]:
    """Runs `fn(rank, *args)` on `n` ranks, each a thread of this process, and returns what they returned, by rank.

    Where a rank raises, the others are stopped at their next collective and its exception is raised here. A rank that
    waits for others lets them run: the interpreter's lock is released around every collective.

    >>> import torch, sherd
    >>> def rows(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     x = sherd.distribute_tensor(torch.arange(10), mesh, [sherd.Shard(0)])
    ...     return sherd.to_local(x).tolist()
    >>> sherd.spawn(4, rows)
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    """
    if not callable(fn):
        raise TypeError(
            error_text("spawn", "a function is needed", "sherd.spawn(4, train)", given=type(fn).__name__)
        )
    return _C.spawn(n, lambda rank: fn(rank, *args), backend, timeout, check)


def init(*, backend: str = "", timeout: float | None = None, check: bool = False) -> _C.World:
    """Joins this process's world, once: that of an initialised `torch.distributed`, whose process groups are reused; or
    the one that torchrun, `sherd run`, mpirun or srun started it in; or a world of one rank. In a rank thread of
    spawn() it is that rank's.

    Called by everything that needs ranks, so a program need not call it.

    >>> import sherd
    >>> sherd.init()
    World(rank 0 of 1)
    """
    world = _C.find_world()
    if world is not None:
        return world
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        from torch.distributed import distributed_c10d as c10d

        world = _C.init_with_store(c10d._get_default_store(), distributed.get_rank(), distributed.get_world_size())
        use_process_group(world, c10d._get_default_group())
    else:
        world = _C.init(backend, timeout, check)
    if world.size > 1:
        _tell_others_of_failure(world)
    # A backend's thread that lets go of a tensor's Python object after the interpreter has ended would end the process.
    atexit.register(_close, world)
    return world


def use_process_group(world: _C.World, group: Any) -> None:
    """Lets the ranks of a process group of torch.distributed talk through its backends."""
    ranks = torch.distributed.get_process_group_ranks(group)
    for device in group._device_types:
        world.use_backend(ranks, device.type, group._get_backend(device))


def fake_world(rank: int, size: int) -> _C.WorldScope:
    """A scope in which this thread is one rank of `size` pretended ones: nothing is sent, and what would be received is
    this rank's own data. For planning, and for measuring what sherd itself costs.

    >>> import sherd
    >>> with sherd.fake_world(3, 8) as world:
    ...     world
    World(rank 3 of 8)
    """
    return _C.WorldScope(_C.fake_world(rank, size))


def _close(world: _C.World) -> None:
    """What went wrong in the background and nobody has heard of ends the program as an exception does."""
    try:
        world.close()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        _C.end_badly()


def _tell_others_of_failure(world: _C.World) -> None:
    """An exception that ends this process ends the other ranks' waiting, and they learn what it was."""
    earlier = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        earlier(kind, error, trace)
        text = str(error)
        if "\n  help: " not in text:
            text = "".join(traceback.format_exception_only(kind, error)).strip()
        world.fail(text)

    sys.excepthook = hook
