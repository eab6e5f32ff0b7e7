"""What torch.Tensor's own methods do with a DTensor: those that read the data of one process, which none has whole.

A DTensor is an exact torch.Tensor, so there is no subclass to put these on. Each looks whether the tensor is a DTensor
and is the original otherwise.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from . import _C
from ._errors import error_text


def describe(tensor: torch.Tensor) -> str:
    """What printing a DTensor shows: the whole's shape, mesh and placements, and this rank's part."""
    mesh = _C.mesh_of(tensor)
    with torch.no_grad():
        local = _C.to_local(tensor.detach(), None)
        lines = [f"DTensor({_C.describe(tensor)}"]
        if mesh.get_coordinate() is None:
            lines.append(f"rank {mesh.get_rank()} is not in the mesh")
        else:
            boxes = ", ".join(str(box) for box in _C.layout_of(tensor).boxes(mesh.get_rank())) or "nothing"
            lines.append(f"rank {mesh.get_rank()} holds {boxes}:\n{_original_repr(local)}")
    if tensor.grad_fn is not None:
        lines.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        lines.append("requires_grad=True")
    return ", ".join(lines) + ")"


def _repr(original: Callable[..., str], self: torch.Tensor, **kwargs: Any) -> str:
    return describe(self)


def _format(original: Callable[..., str], self: torch.Tensor, spec: str) -> str:
    return describe(self) if not spec else original(self, spec)


def _deepcopy(original: Callable[..., torch.Tensor], self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(self) in memo:
        copied: torch.Tensor = memo[id(self)]
        return copied
    if not self.is_leaf:
        return original(self, memo)  # torch says that only leaves can be copied
    with torch.no_grad():
        result = self.clone(memory_format=torch.preserve_format)
        result.requires_grad_(self.requires_grad)
        if self.grad is not None:
            result.grad = copy.deepcopy(self.grad, memo)
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
    memo[id(self)] = result
    return result


def _refuse(operation: str, problem: str, help: str) -> Callable[..., Any]:
    def refuse(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(error_text(operation, problem, help, tensor=_C.describe(self)))

    return refuse


_WHOLE = "sherd.full_tensor(tensor) for all of it, sherd.to_local(tensor) for this rank's part"
_HANDLERS: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__format__": _format,
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _refuse("pickle", "a DTensor is no object of one process", _WHOLE),
    "numpy": _refuse("numpy", "a rank has only its part of a DTensor", _WHOLE),
    "__array__": _refuse("numpy", "a rank has only its part of a DTensor", _WHOLE),
    "tolist": _refuse("tolist", "a rank has only its part of a DTensor", _WHOLE),
    "is_shared": lambda original, self: False,
    "__dlpack__": _refuse("dlpack", "a rank has only its part of a DTensor", _WHOLE),
}

_original_repr: Callable[[torch.Tensor], str] = torch.Tensor.__repr__


def _install(kind: type, name: str, handler: Callable[..., Any]) -> None:
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _C.is_dtensor(self):
            return handler(original, self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


def install() -> None:
    for name, handler in _HANDLERS.items():
        _install(torch.Tensor, name, handler)
    # A Parameter has these of its own.
    _install(torch.nn.Parameter, "__repr__", lambda original, self: "Parameter containing:\n" + describe(self))
    _install(torch.nn.Parameter, "__reduce_ex__", _HANDLERS["__reduce_ex__"])
