"""What users pass in, checked and brought to one form. Every check raises alike on every rank, before data moves."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from . import _C
from ._errors import error_text

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Placement = _C.Replicate | _C.Shard | _C.StridedShard | _C.Ragged | _C.Partial
PLACEMENT_TYPES = (_C.Replicate, _C.Shard, _C.StridedShard, _C.Ragged, _C.Partial)


def is_torch_dtensor(value: object) -> TypeGuard[DTensor]:
    """True for a DTensor of torch.distributed.tensor; imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def is_torch_mesh(value: object) -> bool:
    module = sys.modules.get("torch.distributed.device_mesh")
    return module is not None and isinstance(value, module.DeviceMesh)


def check_tensor(operation: str, tensor: object) -> torch.Tensor:
    """Any tensor but one of torch.distributed.tensor."""
    if is_torch_dtensor(tensor):
        raise TypeError(
            error_text(
                operation,
                "this is a DTensor of torch.distributed.tensor",
                "sherd.from_torch(tensor)",
                tensor=f"{tuple(tensor.shape)} on {tensor.device_mesh}",
            )
        )
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            error_text(operation, "a torch.Tensor is needed", "torch.as_tensor(value)", given=type(tensor).__name__)
        )
    return tensor


def check_plain(
    operation: str, tensor: object, help: str, help_for_sharded: str = "sherd.sharded.to_dtensor(tensor)"
) -> torch.Tensor:
    """A tensor that is not distributed yet. `help` is for a DTensor."""
    tensor = check_tensor(operation, tensor)
    if _C.is_dtensor(tensor):
        raise ValueError(
            error_text(operation, "the tensor is distributed already", help, tensor=_C.describe(tensor))
        )
    if _C.sharded.is_sharded_tensor(tensor):
        raise ValueError(
            error_text(operation, "the tensor is distributed already", help_for_sharded,
                       tensor=_C.sharded.describe(tensor))
        )
    return tensor


def check_dtensor(operation: str, tensor: object) -> torch.Tensor:
    tensor = check_tensor(operation, tensor)
    if not _C.is_dtensor(tensor):
        raise ValueError(
            error_text(
                operation,
                "the tensor is not distributed",
                "sherd.distribute_tensor(tensor, mesh, [sherd.Replicate()])",
                tensor=_C.describe(tensor),
            )
        )
    return tensor


def mesh_or_current(operation: str, mesh: object) -> _C.DeviceMesh:
    """The mesh given, or the one of the innermost `with mesh:`."""
    if mesh is None:
        return _C.current_mesh()
    if is_torch_mesh(mesh):
        raise TypeError(
            error_text(operation, "this is a DeviceMesh of torch.distributed", "sherd.from_torch(mesh)", mesh=mesh)
        )
    if not isinstance(mesh, _C.DeviceMesh):
        raise TypeError(
            error_text(
                operation,
                "a sherd.DeviceMesh is needed",
                'mesh = sherd.init_device_mesh("cpu", (4,))',
                given=type(mesh).__name__,
            )
        )
    return mesh


def _one_placement(operation: str, value: Any) -> Placement:
    if isinstance(value, PLACEMENT_TYPES):
        return value
    module = sys.modules.get("torch.distributed.tensor.placement_types")
    if module is not None:
        if isinstance(value, module._StridedShard):
            return _C.StridedShard(value.dim, value.split_factor)
        if isinstance(value, module.Shard):
            return _C.Shard(value.dim)
        if isinstance(value, module.Replicate):
            return _C.Replicate()
        if isinstance(value, module.Partial):
            return _C.Partial(value.reduce_op)
    raise TypeError(
        error_text(
            operation,
            "this is no placement",
            "[sherd.Shard(0), sherd.Replicate()]: one placement for each mesh axis",
            given=f"{value!r} ({type(value).__name__})",
        )
    )


def checked_placements(operation: str, placements: object, mesh: _C.DeviceMesh) -> list[Placement]:
    """One placement per mesh axis; None is Replicate on all of them. Those of torch.distributed.tensor are fine, too."""
    if placements is None:
        return [_C.Replicate()] * mesh.ndim
    if isinstance(placements, str) or not isinstance(placements, Iterable):
        placements = [placements]
    return [_one_placement(operation, value) for value in placements]


def checked_shape(operation: str, size: Sequence[Any], help: str | None = None) -> list[int]:
    """zeros(2, 3) and zeros((2, 3)) alike."""
    if len(size) == 1 and isinstance(size[0], Sequence):
        size = size[0]
    try:
        return [operator.index(n) for n in size]
    except TypeError:
        raise TypeError(
            error_text(operation, "a shape is a sequence of integers",
                       help or f"sherd.{operation}(8, 8, device_mesh=mesh)", given=repr(size))
        ) from None
