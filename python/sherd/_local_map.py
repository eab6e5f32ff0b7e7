"""Code on local tensors inside a program on DTensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _C
from ._arguments import Placement, checked_placements, mesh_or_current

Each = Sequence[Sequence[Placement] | None]


def local_map(
    func: Callable[..., Any],
    out_placements: Each,
    in_placements: Each,
    *,
    device_mesh: _C.DeviceMesh | None = None,
    redistribute_inputs: bool = False,
    in_grad_placements: Each = (),
) -> Callable[..., Any]:
    """Makes a function of DTensors of one of local tensors, as torch.distributed.tensor.experimental.local_map does.

    Each call hands `func` this rank's parts of the arguments and takes what it returns, a tensor or a tuple of them, as
    this rank's parts of the results. Placements are given for each result and each argument; None passes it as it is.
    Differentiable where `func` is. An argument of other placements is an error, or is moved (`redistribute_inputs`).

    >>> import torch, sherd
    >>> def double(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     fn = sherd.local_map(lambda x, k: x * k, [[sherd.Shard(0)]], [[sherd.Shard(0)], None], device_mesh=mesh)
    ...     return sherd.full_tensor(fn(sherd.distribute_tensor(torch.ones(3), mesh, [sherd.Shard(0)]), 2)).tolist()
    >>> sherd.spawn(2, double)[0]
    [2.0, 2.0, 2.0]
    """
    mesh = mesh_or_current("local_map", device_mesh)

    def entries(each: Each) -> list[list[Placement] | None]:
        return [None if one is None else checked_placements("local_map", one, mesh) for one in each]

    call = _C.LocalMap(mesh, entries(in_placements), entries(out_placements), redistribute_inputs,
                       entries(in_grad_placements))

    def mapped(*args: Any) -> Any:
        call.check_arguments(len(args))
        own = []
        for i, arg in enumerate(args):
            if isinstance(arg, torch.Tensor):
                own.append(call.local_input(arg, i))
            else:
                call.check_other(i)
                own.append(arg)
        result = func(*own)
        several = isinstance(result, (tuple, list))
        results = result if several else (result,)
        call.check_results(len(results))
        placed = [call.global_result(each, i) for i, each in enumerate(results)]
        return type(result)(placed) if several else placed[0]

    return mapped
