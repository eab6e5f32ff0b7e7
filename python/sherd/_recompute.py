"""Activation checkpointing: memory for time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _C
from ._errors import error_text


def recompute(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), of which only the inputs are kept for backward; there fn runs again.

    It returns a tensor, or a tuple or list of them. Tensors among `args` may be plain or DTensors; those elsewhere get
    their gradients as always. The second run draws the random numbers of the first (dropout).

    >>> import torch, sherd
    >>> def grad(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     x = sherd.distribute_tensor(torch.ones(4), mesh, [sherd.Shard(0)]).requires_grad_()
    ...     sherd.recompute(lambda t: t * t * t, x).sum().backward()
    ...     return sherd.full_tensor(x.grad).tolist()
    >>> sherd.spawn(2, grad)[0]
    [3.0, 3.0, 3.0, 3.0]
    """
    places = [i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    plain = [None if isinstance(arg, torch.Tensor) else arg for arg in args]  # the graph keeps the tensors
    kind: list[type] = []

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        own = list(plain)
        for place, tensor in zip(places, tensors):
            own[place] = tensor
        result = fn(*own, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if not results or not all(isinstance(each, torch.Tensor) for each in results):
            raise TypeError(
                error_text("recompute", "the function returns something else than tensors",
                           "return a tensor, or a tuple of tensors", returned=type(result).__name__)
            )
        kind[:] = [type(result) if isinstance(result, (tuple, list)) else torch.Tensor]
        return results

    results = _C.recompute(run, [args[place] for place in places])
    if kind[0] is torch.Tensor:
        return results[0]
    return results if kind[0] is list else tuple(results)
