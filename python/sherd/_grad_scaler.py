"""Scaled losses for float16."""

from __future__ import annotations

import torch

from . import _C
from ._tensor import to_local


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for gradients of any placements and meshes.

    Ranks agree on whether one of them is not finite, by an all_reduce of one number along each mesh axis: all step or none
    does, and all have the same scale.

    >>> import torch, sherd
    >>> def step(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     w = sherd.distribute_tensor(torch.ones(4), mesh, [sherd.Shard(0)]).requires_grad_()
    ...     optimizer, scaler = torch.optim.SGD([w], lr=1.0), sherd.GradScaler("cpu", init_scale=4.0)
    ...     scaler.scale((w * torch.tensor([1.0, 1.0, 1.0, float("inf")])).sum()).backward()
    ...     scaler.step(optimizer)  # skipped: rank 1 has an infinity
    ...     scaler.update()
    ...     return sherd.full_tensor(w.detach()).tolist(), scaler.get_scale()
    >>> sherd.spawn(2, step)
    [([1.0, 1.0, 1.0, 1.0], 2.0), ([1.0, 1.0, 1.0, 1.0], 2.0)]
    """

    @torch.no_grad()
    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        meshes: dict[_C.DeviceMesh, None] = {}  # in the order of the parameters, the same on every rank
        found: dict[torch.device, torch.Tensor] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if grad.dtype == torch.float16 and not allow_fp16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                if _C.is_dtensor(grad):
                    meshes[_C.mesh_of(grad)] = None
                    grad = to_local(grad.detach())
                flag = found.setdefault(grad.device, found_inf.to(grad.device, copy=True))
                torch._amp_foreach_non_finite_check_and_unscale_([grad], flag, inv_scale.to(grad.device))
        for mesh in meshes:
            if mesh.get_coordinate() is None:
                continue
            for axis in range(mesh.ndim):
                _C.all_reduce(mesh.get_group(axis), found[mesh.device], "max").wait()
        return found
