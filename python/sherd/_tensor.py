"""Sharded tensors: how they are made, moved and taken apart. A DTensor is an ordinary torch.Tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _C
from ._arguments import (
    Placement,
    check_dtensor,
    check_plain,
    check_tensor,
    checked_placements,
    checked_shape,
    mesh_or_current,
)
from ._errors import error_text

_REDISTRIBUTE = "sherd.redistribute(tensor, placements=placements)"


def is_dtensor(tensor: object) -> bool:
    """True for a tensor that is sharded over a mesh by sherd.

    >>> import torch, sherd
    >>> sherd.is_dtensor(torch.zeros(2))
    False
    """
    return isinstance(tensor, torch.Tensor) and _C.is_dtensor(tensor)


def placements(tensor: torch.Tensor) -> tuple[Placement, ...]:
    """How each axis of the tensor's mesh holds it.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (2, 2))
    ...     sherd.placements(sherd.zeros(8, 8, device_mesh=mesh, placements=[sherd.Shard(0), sherd.Replicate()]))
    (Shard(0), Replicate())
    """
    return _C.placements_of(check_dtensor("placements", tensor))


def device_mesh(tensor: torch.Tensor) -> _C.DeviceMesh:
    """The mesh that a DTensor lives on."""
    return _C.mesh_of(check_dtensor("device_mesh", tensor))


def layout(tensor: torch.Tensor) -> _C.Layout:
    """Which part of a DTensor each rank holds.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     layout = sherd.layout(sherd.zeros(10, 2, device_mesh=mesh, placements=[sherd.Shard(0)]))
    >>> layout.boxes(rank=3)
    [[9:10, 0:2]]
    """
    return _C.layout_of(check_dtensor("layout", tensor))


def visualize(tensor: torch.Tensor) -> str:
    """The boxes of a DTensor, drawn for a terminal.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    ...     x = sherd.zeros(8, 6, device_mesh=mesh, placements=[sherd.Shard(0), sherd.Shard(1)])
    ...     print(sherd.visualize(x))
    [8@dp, 6@tp] on [dp=2, tp=2]
      0   3   6
    0 ┌───┬───┐
      │ 0 │ 1 │
    4 ├───┼───┤
      │ 2 │ 3 │
    8 └───┴───┘
    <BLANKLINE>
    """
    return _C.visualize(check_dtensor("visualize", tensor))


def distribute_tensor(
    tensor: torch.Tensor,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> torch.Tensor:
    """A DTensor of a tensor that every rank of the mesh has, or the source rank alone.

    The ranks get the data of `src_data_rank` along each mesh axis. With None every rank has the same data already and
    cuts out its own part, without communication. The result is a leaf and keeps `requires_grad`; a Parameter gives a
    Parameter.

    >>> import torch, sherd
    >>> def total(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     x = sherd.distribute_tensor(torch.ones(10, 3), mesh, [sherd.Shard(0)])
    ...     return x.sum().item()
    >>> sherd.spawn(4, total)
    [30.0, 30.0, 30.0, 30.0]
    """
    check_plain("distribute_tensor", tensor, _REDISTRIBUTE)
    mesh = mesh_or_current("distribute_tensor", device_mesh)
    result = _C.distribute_tensor(tensor, mesh, checked_placements("distribute_tensor", placements, mesh), src_data_rank)
    if isinstance(tensor, torch.nn.Parameter) and mesh.device_type != "xla":
        return torch.nn.Parameter(result.detach(), requires_grad=tensor.requires_grad)
    return result


def from_local(
    local_tensor: torch.Tensor,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    run_check: bool = False,
    shape: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    grad_placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """A DTensor whose part on this rank is `local_tensor`. Differentiable.

    Without a `shape` the global one is found: uneven parts are counted, not guessed. `run_check` compares dtype, ndim
    and sizes between the ranks and gives replicated axes the data of their first rank.

    >>> import torch, sherd
    >>> def shape(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     return sherd.from_local(torch.zeros(rank, 2), mesh, [sherd.Shard(0)]).shape
    >>> sherd.spawn(4, shape)[0]
    torch.Size([6, 2])
    """
    check_plain("from_local", local_tensor, "sherd.to_local(tensor)")
    mesh = mesh_or_current("from_local", device_mesh)
    return _C.from_local(
        local_tensor,
        mesh,
        checked_placements("from_local", placements, mesh),
        run_check,
        None if shape is None else list(shape),
        None if stride is None else list(stride),
        None if grad_placements is None else checked_placements("from_local", grad_placements, mesh),
    )


def to_local(tensor: torch.Tensor, *, grad_placements: Sequence[Placement] | None = None) -> torch.Tensor:
    """This rank's part, not copied. Differentiable; `grad_placements` says what the gradient of the parts means.

    >>> import torch, sherd
    >>> with sherd.fake_world(1, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     x = sherd.distribute_tensor(torch.arange(8), mesh, [sherd.Shard(0)], src_data_rank=None)
    ...     sherd.to_local(x)
    tensor([2, 3])
    """
    check_dtensor("to_local", tensor)
    wanted = None if grad_placements is None else checked_placements("to_local", grad_placements, _C.mesh_of(tensor))
    return _C.to_local(tensor, wanted)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """All of the tensor, on every rank. Differentiable.

    >>> import torch, sherd
    >>> def whole(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (3,))
    ...     return sherd.full_tensor(sherd.distribute_tensor(torch.arange(5), mesh, [sherd.Shard(0)])).tolist()
    >>> sherd.spawn(3, whole)[2]
    [0, 1, 2, 3, 4]
    """
    if not _C.is_dtensor(check_tensor("full_tensor", tensor)) and _C.is_xla_marked(tensor):
        return _C.full_tensor(tensor)
    return _C.full_tensor(check_dtensor("full_tensor", tensor))


def constrain(tensor: torch.Tensor, placements: Sequence[Placement]) -> torch.Tensor:
    """redistribute() for DTensors, the tensor itself otherwise: for modules that also run undistributed.

    >>> import torch, sherd
    >>> sherd.constrain(torch.ones(2), [sherd.Replicate()])
    tensor([1., 1.])
    """
    if not _C.is_dtensor(check_tensor("constrain", tensor)):
        return tensor
    wanted = checked_placements("constrain", placements, _C.mesh_of(tensor))
    return _C.redistribute(tensor, wanted, _C.RedistributeOptions("automatic", 64 << 20, None, None, False, False))


def distribute_parameter_(
    tensor: torch.Tensor,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> None:
    """Replaces a parameter or buffer by its distributed form, in place: modules and optimizers that have it see it.

    >>> import torch, sherd
    >>> layer = torch.nn.Linear(4, 8)
    >>> with sherd.fake_world(0, 2):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     sherd.distribute_parameter_(layer.weight, mesh, [sherd.Shard(0)], src_data_rank=None)
    ...     sherd.to_local(layer.weight).shape
    torch.Size([4, 4])
    """
    check_plain("distribute_parameter_", tensor, _REDISTRIBUTE)
    mesh = mesh_or_current("distribute_parameter_", device_mesh)
    wanted = checked_placements("distribute_parameter_", placements, mesh)
    _C.distribute_parameter_(tensor, mesh, wanted, src_data_rank)


def _made(
    name: str,
    size: Sequence[Any],
    dtype: torch.dtype | None,
    requires_grad: bool,
    device_mesh: _C.DeviceMesh | None,
    placements: Sequence[Placement] | None,
) -> torch.Tensor:
    mesh = mesh_or_current(name, device_mesh)
    wanted = checked_placements(name, placements, mesh)
    made: torch.Tensor = getattr(_C, name)(checked_shape(name, size), mesh, wanted, dtype, requires_grad)
    return made


def zeros(
    *size: Any,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Zeros; every rank makes its own part. Replicated where no placements are given.

    >>> import sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     sherd.to_local(sherd.zeros(8, 2, device_mesh=mesh, placements=[sherd.Shard(0)]))
    tensor([[0., 0.],
            [0., 0.]])
    """
    return _made("zeros", size, dtype, requires_grad, device_mesh, placements)


def ones(
    *size: Any,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Ones; see zeros()."""
    return _made("ones", size, dtype, requires_grad, device_mesh, placements)


def empty(
    *size: Any,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Memory that nobody has written to; see zeros()."""
    return _made("empty", size, dtype, requires_grad, device_mesh, placements)


def full(
    size: Sequence[int],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """One value everywhere; see zeros()."""
    mesh = mesh_or_current("full", device_mesh)
    wanted = checked_placements("full", placements, mesh)
    shape = checked_shape("full", [size] if isinstance(size, Sequence) else (size,))
    return _C.full(shape, fill_value, mesh, wanted, dtype, requires_grad)


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """start, start + step, ... up to, without, end; every rank makes its own part.

    >>> import sherd
    >>> with sherd.fake_world(1, 2):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     sherd.to_local(sherd.arange(6, device_mesh=mesh, placements=[sherd.Shard(0)]))
    tensor([3, 4, 5])
    """
    if end is None:
        start, end = 0, start
    mesh = mesh_or_current("arange", device_mesh)
    wanted = checked_placements("arange", placements, mesh)
    return _C.arange(start, end, step, mesh, wanted, dtype, requires_grad)
