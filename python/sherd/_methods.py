"""What torch.Tensor's own methods do with a tensor that many ranks hold: those that read the data of one process, which
none has whole.

Such a tensor is an exact torch.Tensor, so there is no subclass to put these on. Each looks whether the tensor is of one
of the kinds below and is the original otherwise.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import _C
from ._errors import error_text
from ._sharded_arguments import group_options


@dataclass(frozen=True)
class _Kind:
    """A kind of tensor that many ranks hold."""

    name: str
    is_one: Callable[[torch.Tensor], bool]
    summary: Callable[[torch.Tensor], str]
    """In a line: the whole's size, and how it is cut."""
    parts: Callable[[torch.Tensor], list[str]]
    """What printing shows, but for what autograd knows."""
    help: str
    """How to get all of it, and this rank's part."""
    state: Callable[[torch.Tensor], Any] | None = None
    """This rank's part for pickle, and the tensor of it again; None where a rank's part alone is of no use."""
    of_state: Callable[[Any], torch.Tensor] | None = None


def _parts_of_dtensor(tensor: torch.Tensor) -> list[str]:
    mesh = _C.mesh_of(tensor)
    local = _C.to_local(tensor.detach(), None)
    parts = [f"DTensor({_C.describe(tensor)}"]
    if mesh.get_coordinate() is None:
        parts.append(f"rank {mesh.get_rank()} is not in the mesh")
    else:
        boxes = ", ".join(str(box) for box in _C.layout_of(tensor).boxes(mesh.get_rank())) or "nothing"
        parts.append(f"rank {mesh.get_rank()} holds {boxes}:\n{_original_repr(local)}")
    return parts


def _parts_of_sharded(tensor: torch.Tensor) -> list[str]:
    shards = [repr(shard.tensor.detach()) for shard in _C.sharded.local_shards(tensor)]
    text = _C.sharded.describe(tensor).replace(" ", "(", 1)  # "ShardedTensor f32[8, 4] in 4 shards ..."
    return [":\n".join([text, *shards[:1]]) + "".join(f",\n{shard}" for shard in shards[1:])]


def _parts_of_local_shards(tensor: torch.Tensor) -> list[str]:
    shards = [repr(shard.detach()) for shard in _C.local_shards.shards(tensor)]
    text = _C.local_shards.describe(tensor).replace(" ", "(", 1)
    return [":\n".join([text, *shards[:1]]) + "".join(f",\n{shard}" for shard in shards[1:])]


def _state_of_local_shards(tensor: torch.Tensor) -> Any:
    try:
        size = _C.local_shards.checkpointable(tensor).global_size()
    except ValueError:
        size = None  # not known
    shards = [shard.detach() for shard in _C.local_shards.shards(tensor)]
    return shards, _C.local_shards.offsets(tensor), size, tensor.dtype, str(tensor.device)


def _local_shards_of_state(state: Any) -> torch.Tensor:
    shards, offsets, size, dtype, device = state
    return _C.local_shards.make(shards, offsets, size, dtype, shards[0].device if shards else torch.device(device))


def _sharded_of_state(state: bytes) -> torch.Tensor:
    return _C.sharded.load(state, group_options("unpickle"))


_KINDS = (
    _Kind(
        name="DTensor",
        is_one=_C.is_dtensor,
        summary=_C.describe,
        parts=_parts_of_dtensor,
        help="sherd.full_tensor(tensor) for all of it, sherd.to_local(tensor) for this rank's part",
    ),
    _Kind(
        name="ShardedTensor",
        is_one=_C.sharded.is_sharded_tensor,
        summary=_C.sharded.describe,
        parts=_parts_of_sharded,
        help="sherd.sharded.gather(tensor, out=whole) for all of it, "
        "sherd.sharded.local_shards(tensor) for this rank's part",
        state=_C.sharded.save,
        of_state=_sharded_of_state,
    ),
    _Kind(
        name="LocalShardsWrapper",
        is_one=_C.local_shards.is_local_shards,
        summary=_C.local_shards.describe,
        parts=_parts_of_local_shards,
        help="sherd.local_shards(tensor) for its shards, sherd.local_offsets(tensor) for where they lie",
        state=_state_of_local_shards,
        of_state=_local_shards_of_state,
    ),
)


def describe(kind: _Kind, tensor: torch.Tensor) -> str:
    """What printing shows: the whole, how it is cut, and this rank's part."""
    with torch.no_grad():
        parts = kind.parts(tensor)
    if tensor.grad_fn is not None:
        parts.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        parts.append("requires_grad=True")
    return ", ".join(parts) + ")"


# What a method does: Handler(kind, the original method, the tensor, arguments).
Handler = Callable[..., Any]


def _repr(kind: _Kind, original: Callable[..., str], self: torch.Tensor, **kwargs: Any) -> str:
    return describe(kind, self)


def _format(kind: _Kind, original: Callable[..., str], self: torch.Tensor, spec: str) -> str:
    return describe(kind, self) if not spec else original(self, spec)


def _deepcopy(
    kind: _Kind, original: Callable[..., torch.Tensor], self: torch.Tensor, memo: dict[int, Any]
) -> torch.Tensor:
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


def _reduce(kind: _Kind, original: Callable[..., Any], self: torch.Tensor, protocol: Any) -> Any:
    if kind.state is None:
        return _refuse("pickle", "a {} is no object of one process")(kind, original, self)
    return unpickled, (kind.name, kind.state(self.detach()), isinstance(self, torch.nn.Parameter), self.requires_grad)


def unpickled(kind: str, state: Any, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
    """The tensor that a pickle holds: of a ShardedTensor this rank's part, for the same rank of the same world, on the
    group of `sherd.sharded.load_with_process_group` or the whole world. Pickles name this function."""
    (of_state,) = (each.of_state for each in _KINDS if each.name == kind and each.of_state is not None)
    tensor = of_state(state)
    if is_parameter:
        return torch.nn.Parameter(tensor.detach(), requires_grad)
    return tensor.requires_grad_(requires_grad)


def _refuse(operation: str, problem: str) -> Handler:
    def refuse(kind: _Kind, original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        text = error_text(operation, problem.format(kind.name), kind.help, tensor=kind.summary(self))
        raise NotImplementedError(text)

    return refuse


_HANDLERS: dict[str, Handler] = {
    "__repr__": _repr,
    "__format__": _format,
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _reduce,
    "numpy": _refuse("numpy", "a rank has only its part of a {}"),
    "__array__": _refuse("numpy", "a rank has only its part of a {}"),
    "tolist": _refuse("tolist", "a rank has only its part of a {}"),
    "is_shared": lambda kind, original, self: False,
    "__dlpack__": _refuse("dlpack", "a rank has only its part of a {}"),
}

_original_repr: Callable[[torch.Tensor], str] = torch.Tensor.__repr__


def _install(owner: type, name: str, handler: Handler) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        for kind in _KINDS:
            if kind.is_one(self):
                return handler(kind, original, self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


def install() -> None:
    for name, handler in _HANDLERS.items():
        _install(torch.Tensor, name, handler)
    # A Parameter has these of its own.
    _install(
        torch.nn.Parameter, "__repr__", lambda kind, original, self: "Parameter containing:\n" + describe(kind, self)
    )
    _install(torch.nn.Parameter, "__reduce_ex__", _HANDLERS["__reduce_ex__"])
    torch.serialization.add_safe_globals([unpickled])  # it makes tensors and nothing else: torch.load takes it
