"""Data and fully sharded parallel training of torch.nn modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from . import _C
from ._arguments import mesh_or_current
from ._errors import error_text


class GradientSync:
    """The gradients of a module's parameters: reduced in buckets while backward goes on, there when it returns."""

    def __init__(self, sync: _C.GradientSync) -> None:
        self._sync = sync

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward leaves gradients unreduced (Partial) and adds to them; the first one after the scope reduces them."""
        self._sync.pause()
        try:
            yield
        finally:
            self._sync.resume()


def outline_of(operation: str, module: torch.nn.Module) -> _C.ModuleOutline:
    """What the library needs to know of a module."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            error_text(operation, "a torch.nn.Module is needed", f"sherd.{operation}(model, mesh)",
                       given=type(module).__name__)
        )
    modules = dict(module.named_modules())

    def elements(kind: type[torch.nn.Module]) -> list[str]:
        return [
            f"{name}.{child}" if name else child
            for name, owner in modules.items()
            if isinstance(owner, kind)
            for child, _ in owner.named_children()
        ]

    return _C.ModuleOutline(
        list(module.named_parameters()),
        list(module.named_buffers()),
        [name for name in modules if name],
        elements(torch.nn.ModuleList),
        elements(torch.nn.Sequential),
    )


def data_parallel(
    module: torch.nn.Module,
    device_mesh: _C.DeviceMesh | None = None,
    *,
    bucket_bytes: int = 25 << 20,
    reduce_dtype: torch.dtype | None = None,
    source: int | None = 0,
) -> GradientSync:
    """Replicates every parameter and buffer of a module over a mesh, in place, beside what other axes do to it.

    A batch is a DTensor whose rows are sharded over the mesh; the loss is that of the whole batch. Gradients are
    reduced in buckets of `bucket_bytes` while backward goes on. `source`: the place along the axis whose parameters
    count; None where they are equal already.

    >>> import torch, sherd
    >>> def train(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    ...     model = torch.nn.Linear(8, 2)
    ...     sherd.data_parallel(model, mesh)
    ...     x = sherd.distribute_tensor(torch.ones(12, 8), mesh, [sherd.Shard(0)])
    ...     model(x).sum().backward()
    ...     return sherd.full_tensor(model.bias.grad).tolist()
    >>> sherd.spawn(4, train)[0]
    [12.0, 12.0]
    """
    mesh = mesh_or_current("data_parallel", device_mesh)
    outline = outline_of("data_parallel", module)
    return GradientSync(_C.data_parallel(outline, mesh, bucket_bytes, reduce_dtype, source))


def fully_shard(
    module: torch.nn.Module,
    device_mesh: _C.DeviceMesh | None = None,
    *,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    reshard_after_forward: bool = True,
    units: Sequence[str] = (),
    prefetch: bool = True,
    offload: bool = False,
    source: int | None = 0,
) -> GradientSync:
    """Shards every parameter of a module over the last axis of a mesh and replicates it over the others, in place.

    An operator that uses a parameter gets it whole and forgets it. Parameters are gathered unit by unit, the next one
    ahead of its time: `units` are names of modules with wildcards ("blocks.*"); by default the elements of the
    outermost ModuleList or Sequential, and every other module with parameters of its own. `param_dtype`: in which
    parameters are gathered and used. `offload`: parameters, gradients and optimizer state rest in the host's memory.

    >>> import torch, sherd
    >>> def train(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    ...     model = torch.nn.Linear(8, 4)
    ...     sherd.fully_shard(model, mesh)
    ...     x = sherd.distribute_tensor(torch.ones(12, 8), mesh, [sherd.Shard(0)])
    ...     model(x).sum().backward()
    ...     return sherd.placements(model.weight), sherd.to_local(model.weight.grad).shape
    >>> sherd.spawn(4, train)[0]
    ((Shard(0),), torch.Size([1, 8]))
    """
    mesh = mesh_or_current("fully_shard", device_mesh)
    outline = outline_of("fully_shard", module)
    return GradientSync(
        _C.fully_shard(
            outline, mesh, param_dtype, reduce_dtype, reshard_after_forward, list(units), prefetch, offload, source
        )
    )
