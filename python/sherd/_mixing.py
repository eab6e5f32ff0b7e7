"""Refuses an operator on a DTensor of sherd and one of torch.distributed.tensor.

torch itself refuses a tensor that is not one of its DTensors, but takes one of a single element for a number that all
ranks have. A DTensor of sherd is none: its local part would be added as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from . import _C
from ._errors import error_text

_MODULE = "torch.distributed.tensor._dispatch"


def _guard(module: Any) -> None:
    original = module.OpDispatcher._try_replicate_spec_for_scalar_tensor

    def guarded(self: Any, op_call: Any, tensor: torch.Tensor, mesh: Any) -> Any:
        if _C.is_dtensor(tensor):
            raise RuntimeError(  # as torch itself does; Python would take a TypeError for "try the other operand"
                error_text(
                    str(op_call),
                    "one operand is a DTensor of sherd, another one of torch.distributed.tensor",
                    "sherd.from_torch(theirs), or sherd.to_torch(ours)",
                    sherd=_C.describe(tensor),
                    torch=f"on {mesh}",
                )
            )
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
