"""Clipping gradients before an optimizer's step, over parameters of any placements and meshes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import _C


def _tensors(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scales gradients so that together they have a norm of `max_norm` at the most; returns the norm they had.

    It is a plain tensor, what torch.nn.utils.clip_grad_norm_ finds on one device. Ranks tell each other one number per
    parameter, in one all_reduce for each mesh.

    >>> import torch, sherd
    >>> def clip(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     w = sherd.distribute_tensor(torch.ones(4), mesh, [sherd.Shard(0)]).requires_grad_()
    ...     (3 * w).sum().backward()
    ...     return sherd.clip_grad_norm_([w], 1.0).item(), sherd.full_tensor(w.grad)[0].item()
    >>> [round(x, 3) for x in sherd.spawn(2, clip)[0]]
    [6.0, 0.5]
    """
    return _C.clip_grad_norm_(_tensors(parameters), float(max_norm), float(norm_type), error_if_nonfinite)


def clip_grad_value_(parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: float) -> None:
    """Clamps every element of the gradients to [-clip_value, clip_value]."""
    _C.clip_grad_value_(_tensors(parameters), float(clip_value))
