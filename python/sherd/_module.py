"""Modules of torch.nn, distributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from . import _C
from ._arguments import mesh_or_current
from ._errors import error_text
from ._tensor import distribute_parameter_

Module = TypeVar("Module", bound=torch.nn.Module)


def distribute_module(
    module: Module,
    device_mesh: _C.DeviceMesh | None = None,
    partition_fn: Callable[[str, torch.nn.Module, _C.DeviceMesh], None] | None = None,
    input_fn: Callable[[torch.nn.Module, Any, _C.DeviceMesh], Any] | None = None,
    output_fn: Callable[[torch.nn.Module, Any, _C.DeviceMesh], Any] | None = None,
) -> Module:
    """Replaces every parameter and buffer of a module by DTensors, in place, and returns the module.

    `partition_fn(name, submodule, mesh)` is called for every submodule and may shard its parameters, by
    `distribute_parameter_`; the rest is replicated. An optimizer made before sees the same parameters.
    `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` run before and after forward.

    >>> import torch, sherd
    >>> def rows(name, module, mesh):
    ...     if isinstance(module, torch.nn.Linear):
    ...         sherd.distribute_parameter_(module.weight, mesh, [sherd.Shard(0)])
    >>> def train(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     model = sherd.distribute_module(torch.nn.Linear(8, 8), mesh, rows)
    ...     return sherd.placements(model.weight), sherd.placements(model.bias)
    >>> sherd.spawn(4, train)[0]
    ((Shard(0),), (Replicate(),))
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            error_text("distribute_module", "a torch.nn.Module is needed", "sherd.distribute_module(model, mesh)",
                       given=type(module).__name__)
        )
    mesh = mesh_or_current("distribute_module", device_mesh)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if _C.is_dtensor(tensor):
            raise ValueError(
                error_text("distribute_module", "the module is distributed already",
                           "distribute a module once; sherd.redistribute moves a tensor",
                           parameter=name, it_is=_C.describe(tensor))
            )
        if mesh.device_type == "xla" and _C.is_xla_marked(tensor):
            raise ValueError(
                error_text("distribute_module", "the module is distributed already",
                           "distribute a module once", parameter=name, it_is="marked for XLA")
            )
    if partition_fn is not None:
        for name, submodule in module.named_modules():
            partition_fn(name, submodule, mesh)
    for tensor in [*module.parameters(), *module.buffers()]:
        if not (_C.is_dtensor(tensor) or _C.is_xla_marked(tensor)):
            distribute_parameter_(tensor, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda owner, inputs: input_fn(owner, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda owner, inputs, outputs: output_fn(owner, outputs, mesh))
    return module
