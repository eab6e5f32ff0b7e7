"""What a piece of a program communicates, and why."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import torch

from . import _C


class CommDebugMode:
    """Keeps every collective of a scope with the operator, the module and the mesh axis that it is for.

    Names of modules are those of `module`. With `operators`, traces show what is computed, too.

    >>> import sherd, torch
    >>> def program(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    ...     x = sherd.distribute_tensor(torch.ones(4, 6), mesh, [sherd.Shard(0)])
    ...     with sherd.CommDebugMode() as debug, sherd.named_scope("check"):
    ...         sherd.full_tensor(x)
    ...     if rank == 0:
    ...         print(debug.get_comm_counts(), debug.get_total_counts(), debug.bytes)
    ...         print(debug.table(), end="")
    >>> _ = sherd.spawn(2, program)
    {'all_gather': 1} 1 48
    pass      operation    module  collective  axis  dtype  calls  received
    forward   full_tensor  check   all_gather  tp    f32        1      48 B
    forward   all                                               1      48 B
    backward  all                                               0       0 B
    """

    def __init__(self, module: torch.nn.Module | None = None, *, operators: bool = False) -> None:
        names = [] if module is None else [*module.named_parameters(), *module.named_buffers()]
        self._debug = _C.CommDebug(names, operators)

    def __enter__(self) -> CommDebugMode:
        self._debug.enter()
        return self

    def __exit__(self, *args: object) -> None:
        self._debug.exit()

    @property
    def records(self) -> list[_C.CommRecord]:
        """Every collective, in the order in which they began."""
        return self._debug.records()

    @property
    def bytes(self) -> int:
        """That this rank received from others."""
        return self._debug.bytes()

    def get_comm_counts(self, pass_: str | None = None) -> dict[str, int]:
        """How many of each collective; of one pass where that is `"forward"` or `"backward"`."""
        return self._debug.counts(pass_)

    def get_total_counts(self) -> int:
        """How many collectives."""
        return sum(self.get_comm_counts().values())

    def table(self) -> str:
        """A line for all collectives of one kind, operator, module, axis and pass."""
        return self._debug.table()

    def json(self) -> str:
        """The same, every collective by itself, as JSON."""
        return self._debug.json()

    def trace(self, path: str | os.PathLike[str], ranks: _C.DeviceMesh | _C.Group | None = None) -> None:
        """Writes a trace for chrome://tracing and https://ui.perfetto.dev: of this rank, or of a mesh's or group's.

        Every rank of these calls it; the first one writes.
        """
        if isinstance(ranks, _C.DeviceMesh):
            ranks = ranks.world.group(ranks.ranks)
        self._debug.save_trace(os.fspath(path), ranks)

    def trace_json(self) -> str:
        """The trace of this rank."""
        return self._debug.trace_json()

    def explain(self) -> _C.StepExplanation:
        """What was communicated, the dearest first, and what would spare it."""
        return self._debug.explain()


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Names what is done in it, and its backward pass, in reports and for profilers."""
    scope = _C.NamedScope(name)
    scope.enter()
    try:
        yield
    finally:
        scope.exit()


def explain_step(step: Callable[[], object], module: torch.nn.Module | None = None) -> _C.StepExplanation:
    """Runs a step once, on every rank alike, and says what it communicates, why, and what would spare it.

    >>> import sherd, torch
    >>> def program(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    ...     a = sherd.distribute_tensor(torch.ones(4, 6), mesh, [sherd.Shard(1)])
    ...     b = sherd.distribute_tensor(torch.ones(6, 4), mesh, [sherd.Shard(0)])
    ...     explained = sherd.explain_step(lambda: a.mm(b).exp())
    ...     if rank == 0:
    ...         print(explained, end="")
    >>> _ = sherd.spawn(2, program)
    the step receives 64 B in 1 collective, the most first
    <BLANKLINE>
    1. 64 B: all_reduce@tp for aten::exp, forward
       operands: f32[4, 4] P(sum)@tp
       moved:    operand 0, f32[4, 4] P(sum)@tp -> f32[4, 4]
       why:      operand 0 is a sum of which each rank of tp has a part, and this operator wants the sum
       instead:  redistribute it to a Shard where it is made: a reduce_scatter is half of an all_reduce
    """
    with CommDebugMode(module) as debug:
        step()
    return debug.explain()
