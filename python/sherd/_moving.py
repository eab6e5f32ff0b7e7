"""Moving the values of DTensors: to other placements, to another mesh, to boxes and back, several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from . import _C
from ._arguments import Placement, check_dtensor, checked_placements, mesh_or_current
from ._errors import error_text
from ._world import init

Prefer = Literal["automatic", "bytes", "latency"]


def _options(
    prefer: Prefer,
    staging_bytes: int,
    reduce_dtype: torch.dtype | None,
    move_dtype: torch.dtype | None,
    relabel: bool = False,
    async_op: bool = False,
) -> _C.RedistributeOptions:
    if prefer not in ("automatic", "bytes", "latency"):
        raise ValueError(error_text("redistribute", "there is no such preference", 'prefer="bytes"', given=prefer))
    return _C.RedistributeOptions(prefer, staging_bytes, reduce_dtype, move_dtype, relabel, async_op)


def redistribute(
    tensor: torch.Tensor,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    prefer: Prefer = "automatic",
    staging_bytes: int = 64 << 20,
    reduce_dtype: torch.dtype | None = None,
    move_dtype: torch.dtype | None = None,
    relabel: bool = False,
    async_op: bool = False,
) -> torch.Tensor:
    """The same values in other places: replicated on all axes where no placements are given; on another mesh where one
    is given. Differentiable.

    The plan moves the fewest bytes, then the fewest messages; under 64 KiB, or with `prefer="latency"`, it may trade
    bytes for messages. `staging_bytes` bounds what lies in memory beside input and output. Partials are reduced in
    `reduce_dtype` and values travel in `move_dtype`. With `relabel`, ranks of the target mesh may change places.
    With `async_op` it returns at once, and the first operator that uses the result waits for the data; `tensor` must not be
    written before.

    >>> import torch, sherd
    >>> def columns(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     rows = sherd.distribute_tensor(torch.arange(4).reshape(2, 2), mesh, [sherd.Shard(0)])
    ...     return sherd.to_local(sherd.redistribute(rows, mesh, [sherd.Shard(1)])).tolist()
    >>> sherd.spawn(2, columns)
    [[[0], [2]], [[1], [3]]]
    """
    check_dtensor("redistribute", tensor)
    mesh = _C.mesh_of(tensor)
    target = mesh if device_mesh is None else mesh_or_current("redistribute", device_mesh)
    wanted = checked_placements("redistribute", placements, target)
    options = _options(prefer, staging_bytes, reduce_dtype, move_dtype, relabel, async_op)
    if target == mesh and not relabel:
        return _C.redistribute(tensor, wanted, options)
    return _C.redistribute_to_mesh(tensor, target, wanted, options)


def redistribute_async(
    tensor: torch.Tensor,
    placements: Sequence[Placement],
    *,
    device_mesh: _C.DeviceMesh | None = None,
    prefer: Prefer = "automatic",
    staging_bytes: int = 64 << 20,
    reduce_dtype: torch.dtype | None = None,
    move_dtype: torch.dtype | None = None,
    relabel: bool = False,
) -> _C.PendingTensor:
    """redistribute() in the background: `wait()` of what it returns gives the tensor, on its own mesh or on
    `device_mesh`. Every rank starts these in the same order, and does not write to the tensor before.

    >>> import torch, sherd
    >>> def run(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     x = sherd.distribute_tensor(torch.ones(4, 4), mesh, [sherd.Shard(0)])
    ...     pending = sherd.redistribute_async(x, [sherd.Replicate()])
    ...     y = (x * 2).sum()  # meanwhile
    ...     return sherd.to_local(pending.wait()).shape
    >>> sherd.spawn(2, run)
    [torch.Size([4, 4]), torch.Size([4, 4])]
    """
    check_dtensor("redistribute_async", tensor)
    target = _C.mesh_of(tensor) if device_mesh is None else device_mesh
    wanted = checked_placements("redistribute_async", placements, target)
    options = _options(prefer, staging_bytes, reduce_dtype, move_dtype, relabel)
    return _C.redistribute_async(tensor, target, wanted, options)


def redistribute_together(
    tensors: Sequence[torch.Tensor],
    placements: Sequence[Sequence[Placement]],
    *,
    device_mesh: _C.DeviceMesh | None = None,
    prefer: Prefer = "automatic",
    staging_bytes: int = 64 << 20,
    reduce_dtype: torch.dtype | None = None,
    move_dtype: torch.dtype | None = None,
    relabel: bool = False,
    async_op: bool = False,
) -> list[torch.Tensor]:
    """Several tensors of one mesh at once, on it or to `device_mesh`: those that move alike share their messages.
    Differentiable.

    >>> import torch, sherd
    >>> def run(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     layers = [sherd.zeros(4, 4, device_mesh=mesh, placements=[sherd.Shard(0)]) for _ in range(100)]
    ...     with sherd.CommRecorder() as calls:
    ...         whole = sherd.redistribute_together(layers, [[sherd.Replicate()]] * 100)
    ...     return len(calls.calls)
    >>> sherd.spawn(2, run)
    [1, 1]
    """
    for tensor in tensors:
        check_dtensor("redistribute_together", tensor)
    wanted = [
        checked_placements("redistribute_together", each, _C.mesh_of(tensor) if device_mesh is None else device_mesh)
        for tensor, each in zip(tensors, placements, strict=False)
    ]
    wanted += [list(each) for each in placements[len(wanted) :]]
    options = _options(prefer, staging_bytes, reduce_dtype, move_dtype, relabel, async_op)
    return _C.redistribute_together(list(tensors), device_mesh, wanted, options)


def redistribution_text(
    tensor: torch.Tensor,
    placements: Sequence[Placement],
    *,
    device_mesh: _C.DeviceMesh | None = None,
    prefer: Prefer = "automatic",
    staging_bytes: int = 64 << 20,
    reduce_dtype: torch.dtype | None = None,
    move_dtype: torch.dtype | None = None,
    relabel: bool = False,
) -> str:
    """How redistribute() would move a tensor with these options: on its mesh, or to another one. Nothing is moved.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    ...     x = sherd.zeros(1024, 1024, device_mesh=mesh, placements=[sherd.Shard(0)])
    ...     sherd.redistribution_text(x, [sherd.Shard(1)])
    ...     sherd.redistribution_text(x, [sherd.Shard(1)], move_dtype=torch.bfloat16)
    ...     two = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    ...     sherd.redistribution_text(x, [sherd.Shard(0)], device_mesh=two)
    'exchange@tp 768.0 KiB'
    'exchange@tp 384.0 KiB'
    'exchange to [dp=2] 1.5 MiB'
    """
    check_dtensor("redistribution_text", tensor)
    target = _C.mesh_of(tensor) if device_mesh is None else device_mesh
    wanted = checked_placements("redistribution_text", placements, target)
    options = _options(prefer, staging_bytes, reduce_dtype, move_dtype, relabel)
    return _C.redistribution_text(tensor, target, wanted, options)


def read_boxes(
    tensor: torch.Tensor, boxes: Sequence[_C.Box], *, staging_bytes: int = 64 << 20
) -> list[torch.Tensor]:
    """Boxes of a DTensor, each rank those it asks for, none or several. Every rank of the tensor's mesh calls it.
    `staging_bytes` bounds what lies in memory beside tensor and boxes; the same on every rank.

    >>> import torch, sherd
    >>> def corner(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     x = sherd.distribute_tensor(torch.arange(16).reshape(4, 4), mesh, [sherd.Shard(0)])
    ...     return [box.tolist() for box in sherd.read_boxes(x, [sherd.Box([1, 3], [2, 1])] if rank == 0 else [])]
    >>> sherd.spawn(2, corner)
    [[[[7], [11]]], []]
    """
    return _C.read_boxes(check_dtensor("read_boxes", tensor), list(boxes), staging_bytes)


def from_boxes(
    boxes: Sequence[tuple[_C.Box, torch.Tensor]],
    shape: Sequence[int],
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    staging_bytes: int = 64 << 20,
) -> torch.Tensor:
    """A DTensor of the boxes that the ranks have, each its own; together they tile the shape exactly once.

    >>> import torch, sherd
    >>> def run(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     mine = [(sherd.Box([0, 2 * rank], [2, 2]), torch.full((2, 2), float(rank)))]  # columns
    ...     return sherd.to_local(sherd.from_boxes(mine, [2, 4], mesh, [sherd.Shard(0)])).tolist()
    >>> sherd.spawn(2, run)
    [[[0.0, 0.0, 1.0, 1.0]], [[0.0, 0.0, 1.0, 1.0]]]
    """
    mesh = mesh_or_current("from_boxes", device_mesh)
    wanted = checked_placements("from_boxes", placements, mesh)
    return _C.from_boxes(list(boxes), list(shape), mesh, wanted, dtype, staging_bytes)


def measure_costs() -> str:
    """What communication costs between the ranks of this world, as `set_costs` and SHERD_COSTS take it. Every rank calls it
    and gets the same."""
    return _C.measure_costs(init())


def set_costs(costs: str) -> None:
    """The costs by which plans for small tensors are chosen from now on; the same on every rank.

    >>> import sherd
    >>> sherd.set_costs("call=3e-05,message=1e-05,byte=1e-09")
    """
    _C.set_costs(costs)
