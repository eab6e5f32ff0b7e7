"""An exponential moving average of parameters, for evaluation and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from . import _C


class ExponentialMovingAverage(_C.ExponentialMovingAverage):
    """Keeps an average of each parameter, with its placements: a rank averages what it holds, and nothing is sent.

    `update()` after each step; `averages` and `updates` go into checkpoints.

    >>> import torch, sherd
    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> average = sherd.ExponentialMovingAverage([w], decay=0.5)
    >>> with torch.no_grad():
    ...     _ = w.fill_(1.0)
    >>> average.update()
    >>> with average.applied():
    ...     print(w.tolist())
    [0.5, 0.5]
    >>> w.tolist()
    [1.0, 1.0]
    """

    def __init__(self, parameters: Iterable[torch.Tensor], decay: float) -> None:
        super().__init__(list(parameters), float(decay))

    @contextmanager
    def applied(self) -> Iterator[ExponentialMovingAverage]:  # type: ignore[override]
        """In the block the parameters have the values of the averages, and `averages` those of the parameters."""
        scope = super().applied()
        try:
            yield self
        finally:
            del scope  # the last reference: the values are swapped back
