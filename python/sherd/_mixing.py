"""Refuses an operator on a DTensor or ShardedTensor of sherd and a DTensor of torch.distributed.tensor.

torch itself refuses a tensor that is not one of its DTensors, but takes one of a single element for a number that all
ranks have. A tensor of sherd that many ranks hold is none: its local part would be added as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch

from . import _C
from ._errors import error_text

_MODULE = "torch.distributed.tensor._dispatch"


def _refuse(op_call: object, mesh: object, kind: str, ours: str, help: str) -> NoReturn:
    raise RuntimeError(  # as torch itself does; Python would take a TypeError for "try the other operand"
        error_text(str(op_call), f"one operand is a {kind} of sherd, another a DTensor of torch.distributed.tensor", help,
                   sherd=ours, torch=f"on {mesh}")
    )


def _guard(module: Any) -> None:
    original = module.OpDispatcher._try_replicate_spec_for_scalar_tensor

    def guarded(self: Any, op_call: Any, tensor: torch.Tensor, mesh: Any) -> Any:
        if _C.is_dtensor(tensor):
            _refuse(op_call, mesh, "DTensor", _C.describe(tensor), "sherd.from_torch(theirs), or sherd.to_torch(ours)")
        if _C.sharded.is_sharded_tensor(tensor):
            _refuse(op_call, mesh, "ShardedTensor", _C.sharded.describe(tensor),
                    "sherd.to_torch(sherd.sharded.to_dtensor(ours))")
        return original(self, op_call, tensor, mesh)

    module.OpDispatcher._try_replicate_spec_for_scalar_tensor = guarded


class _GuardWhenLoaded(importlib.abc.MetaPathFinder):
    """Lets the other finders load the module and guards it then."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _guard(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    loaded = sys.modules.get(_MODULE)
    if loaded is not None:
        _guard(loaded)
    else:
        sys.meta_path.insert(0, _GuardWhenLoaded())
