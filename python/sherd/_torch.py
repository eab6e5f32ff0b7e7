"""Between sherd and torch.distributed, without copying: the parts are the same tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch

from . import _C
from ._arguments import check_dtensor, checked_placements, is_torch_dtensor, is_torch_mesh
from ._errors import error_text
from ._sharded_arguments import is_torch_sharded
from ._sharded_torch import from_torch as sharded_from_torch
from ._sharded_torch import to_torch as sharded_to_torch
from ._world import init, use_process_group

if TYPE_CHECKING:
    from torch.distributed._shard.sharded_tensor.api import ShardedTensor
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh
    from torch.distributed.tensor import DTensor

# What a mesh was made from, or made into: converting back gives the same object.
_torch_meshes: dict[_C.DeviceMesh, Any] = {}


def _mesh_from_torch(mesh: Any) -> _C.DeviceMesh:
    world = init()
    if not torch.distributed.is_initialized():
        raise ValueError(
            error_text("from_torch", "torch.distributed is not initialised here",
                       "torch.distributed.init_process_group()", mesh=mesh)
        )
    if mesh.get_coordinate() is not None:
        for axis in range(mesh.ndim):
            use_process_group(world, mesh.get_group(axis))
    ours = _C.DeviceMesh(mesh.device_type, mesh.mesh, mesh_dim_names=mesh.mesh_dim_names)
    _torch_meshes.setdefault(ours, mesh)
    return ours


def _mesh_to_torch(mesh: _C.DeviceMesh) -> Any:
    made = _torch_meshes.get(mesh)
    if made is not None:
        return made
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ValueError(
            error_text("to_torch", "torch.distributed is not initialised, and its DTensor needs it",
                       "torch.distributed.init_process_group() before the first call of sherd", mesh=mesh)
        )
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh

    made = TorchMesh(mesh.device_type, mesh.mesh, mesh_dim_names=mesh.mesh_dim_names)
    return _torch_meshes.setdefault(mesh, made)


def _placement_to_torch(placement: Any) -> Any:
    from torch.distributed.tensor import placement_types as theirs

    if isinstance(placement, _C.Replicate):
        return theirs.Replicate()
    if isinstance(placement, _C.Shard):
        return theirs.Shard(placement.dim)
    if isinstance(placement, _C.StridedShard):
        return theirs._StridedShard(placement.dim, split_factor=placement.split)
    if isinstance(placement, _C.Partial):
        return theirs.Partial(placement.reduce_op)
    raise ValueError(
        error_text("to_torch", "torch.distributed.tensor has no placement for cuts of one's own",
                   "sherd.redistribute(tensor, placements=[sherd.Shard(dim)]) first", placement=placement)
    )


@overload
def from_torch(value: TorchMesh) -> _C.DeviceMesh: ...
@overload
def from_torch(value: DTensor | ShardedTensor) -> torch.Tensor: ...
def from_torch(value: Any) -> Any:
    """A sherd DTensor of one of torch.distributed.tensor, with the same local tensor; or a mesh of a mesh, or a
    ShardedTensor of a ShardedTensor.

    Differentiable. The process groups of the torch mesh are the ones that sherd talks through.
    """
    if is_torch_mesh(value):
        return _mesh_from_torch(value)
    if is_torch_sharded(value):
        return sharded_from_torch(value)
    if not is_torch_dtensor(value):
        raise TypeError(
            error_text("from_torch", "neither a DTensor, a ShardedTensor nor a DeviceMesh of torch.distributed",
                       "sherd.distribute_tensor(tensor, mesh, placements)", given=type(value).__name__)
        )
    mesh = _mesh_from_torch(value.device_mesh)
    wanted = checked_placements("from_torch", value.placements, mesh)
    leaf = value.is_leaf and value.requires_grad
    local = value._local_tensor if leaf else value.to_local()
    result = _C.from_local(local.detach() if leaf else local, mesh, wanted, False, list(value.shape),
                           list(value.stride()), None)
    return result.requires_grad_() if leaf else result


@overload
def to_torch(value: _C.DeviceMesh) -> TorchMesh: ...
@overload
def to_torch(value: torch.Tensor) -> Any: ...
def to_torch(value: Any) -> Any:
    """The DTensor of torch.distributed.tensor with the same local tensor; or a mesh of a mesh, or a ShardedTensor of a
    ShardedTensor. Differentiable, but for the last."""
    if isinstance(value, _C.DeviceMesh):
        return _mesh_to_torch(value)
    if isinstance(value, torch.Tensor) and _C.sharded.is_sharded_tensor(value):
        return sharded_to_torch(value)
    check_dtensor("to_torch", value)
    from torch.distributed.tensor import DTensor

    wanted = [_placement_to_torch(placement) for placement in _C.placements_of(value)]
    mesh = _mesh_to_torch(_C.mesh_of(value))
    leaf = value.is_leaf and value.requires_grad
    local = _C.to_local(value.detach() if leaf else value, None)
    result = DTensor.from_local(local, mesh, wanted, run_check=False, shape=value.shape, stride=value.stride())
    return result.requires_grad_() if leaf else result
