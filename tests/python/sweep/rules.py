"""Which rules of sherd an operator of the list comes to: it calls operators of aten, and those have rules."""

import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sweep import cases

# They only say what is there; every operator of the list may call them.
_NOISE = {"aten::detach", "aten::alias", "aten::clone", "aten::_to_copy", "aten::empty", "aten::copy_", "aten::fill_"}


class _Called(TorchDispatchMode):
    """The operators of aten that are called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: dict[str, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.setdefault(func._schema.name, func)
        return func(*args, **(kwargs or {}))


def rules_of(operator: str) -> str:
    """"mm: i k, k j -> i j; relu: * -> *": of the operators of aten that the first sample calls, forwards."""
    import sherd

    op = cases.operators().get(operator)
    dtype = next((dtype for dtype in cases.DTYPES.values() if op and cases.supports(op, dtype)), None)
    listed = cases.samples(op, dtype) if op and dtype else []
    if not listed:
        return ""
    sample = listed[0]
    with _Called() as called, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sample.call([tensor.detach().clone() for tensor in sample.tensors])
        except Exception:  # the list has samples that are wrong on purpose
            return ""
    found = {}
    for name, func in called.operators.items():
        texts = sherd.rules_of(name)
        if not texts and torch.Tag.pointwise in func.tags:
            texts = ["* -> *"]
        found[name.removeprefix("aten::")] = " ".join(texts[0].split()) if texts else "whole"
    telling = {name: rule for name, rule in found.items() if f"aten::{name}" not in _NOISE} or found
    return "; ".join(f"{name}: {rule}" for name, rule in list(telling.items())[:4]).replace("|", "\\|")
