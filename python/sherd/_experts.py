"""A mixture of experts whose experts lie on different ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import _C
from ._arguments import mesh_or_current


def expert_parallel(
    tokens: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    axis: _C.DeviceMesh | None,
    experts: int,
    run: Callable[[_C.ExpertBatch], torch.Tensor],
    *,
    parameters: Sequence[torch.Tensor] = (),
    capacity: int | None = None,
) -> torch.Tensor:
    """For each token the sum, over its choices, of weight times the chosen expert's output. Differentiable.

    `tokens` [n, width], `chosen` [n, choices] numbers of experts, `weights` [n, choices]: DTensors, or this rank's own.
    `axis` is the mesh axis over which the experts lie, dealt out as Shard(0) deals out rows. `run(batch)` returns one row
    for each of `batch.tokens`: rows `offsets[i]` to `offsets[i + 1]` are for the rank's i-th expert, whose parts of
    `parameters` are row i of `batch.parameters`. An expert takes `capacity` choices at the most.

    >>> import torch, sherd
    >>> def route(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     def run(batch):
    ...         return torch.cat([batch.tokens_of(i) * (batch.first_expert + i) for i in range(len(batch))])
    ...     x = sherd.distribute_tensor(torch.ones(4, 3), mesh, [sherd.Shard(0)])
    ...     chosen = torch.tensor([[0], [1], [2], [3]])
    ...     y = sherd.expert_parallel(x, chosen, torch.ones(4, 1), mesh, 4, run)
    ...     return sherd.full_tensor(y)[:, 0].tolist()
    >>> sherd.spawn(2, route)[0]
    [0.0, 1.0, 2.0, 3.0]
    """
    mesh = mesh_or_current("expert_parallel", axis)
    return _C.expert_parallel(tokens, chosen, weights, mesh, experts, run, list(parameters), capacity)
