"""Worlds of processes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

SECONDS = 120  # for one world


def _rank_main(rank: int, world: int, file: str, run: Callable[[int, int], None], answer: Any) -> None:
    warnings.simplefilter("ignore")  # unittest shows them again
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
        run(rank, world)
        dist.barrier()
        answer.send("")
    except BaseException:
        answer.send(f"rank {rank} of {world}:\n{traceback.format_exc()}")
        os._exit(1)


def in_world(world: int, run: Callable[[int, int], None]) -> None:
    """Runs `run(rank, world)` in processes of its own, forked so that torch is imported once."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(world)]
        ranks = [
            context.Process(
                target=_rank_main, args=(rank, world, str(pathlib.Path(folder, "store")), run, ends[rank][1])
            )
            for rank in range(world)
        ]
        for rank in ranks:
            rank.start()
        # The first answer that tells of a failure will do: the other ranks may wait for that one.
        waiting = [end[0] for end in ends]
        failure = None
        while waiting and failure is None:
            ready = multiprocessing.connection.wait(waiting, timeout=SECONDS)
            if not ready:
                failure = f"no answer within {SECONDS} s"
            for end in ready:
                waiting.remove(end)
                failure = failure or end.recv() or None
        for rank in ranks:
            if failure is not None:
                rank.kill()
            rank.join()
    if failure is not None:
        raise AssertionError(failure)


def run_each(rank: int, world: int, functions: list[Callable[[int, int], None]]) -> None:
    for function in functions:
        try:
            function(rank, world)
        except Exception as error:
            error.add_note(f"in {function.__name__}") if hasattr(error, "add_note") else None
            raise
