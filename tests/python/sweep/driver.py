"""Many cases: hands tasks to workers, and ends those that hang."""

import asyncio
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.results import ResultFile
from sweep.worker import Task

_PATIENCE_S = 20.0  # without a word: it hangs
_IDLE_S = 4.0  # without a word and without using a processor: it hangs
_START_S = 120.0
_POLL_S = 0.5


@dataclass
class Options:
    jobs: int = 2
    again: bool = False  # what is done already, too
    progress: Callable[[int, int, Task], None] = lambda done, total, task: None


def run(tasks: Sequence[Task], results: ResultFile, options: Options) -> None:
    """The tasks, but for those that `results` has done already; each result is in the file as soon as it is known."""
    left = [task for task in tasks if options.again or not results.is_done(task)]
    asyncio.run(_run(left, results, options))


async def _run(tasks: list[Task], results: ResultFile, options: Options) -> None:
    # Those of one peer follow one another: a worker serves one peer.
    waiting = sorted(tasks, key=lambda task: task.peer)
    waiting.reverse()
    total = len(waiting)

    async def serve() -> None:
        worker: _Worker | None = None
        while waiting:
            task = waiting.pop()
            passed_over: set[str] = set()
            hung: set[str] = set()
            while True:
                if worker is None or worker.peer != task.peer:
                    if worker is not None:
                        await worker.stop()
                    worker = await _Worker.start(task.peer)
                fault = await worker.run(task, passed_over, hung, results)
                if fault is None:
                    break
                worker = None
                if fault["outcome"] == "hang" and fault["case"] not in hung:
                    hung.add(fault["case"])  # the machine may have been slow: once more, in a new worker
                    continue
                results.add(fault)
                if fault["case"] in passed_over or ":-:" in fault["case"]:
                    break  # the samples themselves cannot be made
                passed_over.add(fault["case"])
            results.done(task)
            options.progress(total - len(waiting), total, task)
        if worker is not None:
            await worker.stop()

    await asyncio.gather(*(serve() for _ in range(options.jobs)))


class _Worker:
    def __init__(self, peer: str, process: asyncio.subprocess.Process, log: Any) -> None:
        self.peer = peer
        self._process = process
        self._log = log  # what it printed

    @staticmethod
    async def start(peer: str) -> "_Worker":
        log = tempfile.TemporaryFile()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "faulthandler", "-m", "sweep.worker", peer),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=1 << 22,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        worker = _Worker(peer, process, log)
        if await worker._next(_START_S, _START_S) is None:
            await worker._kill()
            raise RuntimeError(f"worker for {peer} does not start:\n{worker._tail(3000)}")
        return worker

    async def run(
        self, task: Task, passed_over: set[str], hung: set[str], results: ResultFile
    ) -> dict[str, Any] | None:
        """None where the task was done; else the record of the case that ended this worker.

        `passed_over`: cases to leave out; those that are done are added. `hung`: those that hung once before.
        """
        order = {"task": dataclasses.asdict(task), "passed_over": sorted(passed_over)}
        self._process.stdin.write((json.dumps(order) + "\n").encode())
        begun = ":".join((task.operator, task.dtype, "-", "dense", task.mesh))
        while True:
            message = await self._next(_PATIENCE_S, _IDLE_S)
            if message is None:
                return await self._fault(task, begun)
            if "end" in message:
                return None
            if "begin" in message:
                begun = message["begin"]
            else:
                passed_over.add(message["case"])
                results.add(message | ({"hung_once": True} if message["case"] in hung else {}))

    async def stop(self) -> None:
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            await self._kill()

    async def _next(self, patience: float, idle: float) -> dict[str, Any] | None:
        """The next message; None where the worker has ended, or says nothing for too long."""
        spoke = worked = time.monotonic()
        used = self._processor_s()
        line = asyncio.ensure_future(self._process.stdout.readline())
        while True:
            done, _ = await asyncio.wait([line], timeout=_POLL_S)
            if done:
                return json.loads(line.result()) if line.result().endswith(b"\n") else None
            now, now_used = time.monotonic(), self._processor_s()
            if now_used > used + 0.02:
                worked, used = now, now_used
            if now - spoke > patience or now - worked > idle:
                line.cancel()
                return None

    def _processor_s(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def _fault(self, task: Task, case: str) -> dict[str, Any]:
        record = {"case": case, "peer": task.peer}
        try:
            code = await asyncio.wait_for(self._process.wait(), 1)
        except TimeoutError:
            await self._kill()
            if case.split(":")[3] == "dense":
                return record | {"outcome": "skipped", "message": "the dense call does not end"}
            return record | {"outcome": "hang", "message": "no word for too long"}
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        message = f"{how}\n{self._tail(1500)}"
        if case.split(":")[3] == "dense":
            return record | {"outcome": "skipped", "message": f"the dense call crashes: {message}"}
        return record | {"outcome": "crash", "message": message}

    async def _kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def _tail(self, length: int) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - length))
        return self._log.read().decode(errors="replace")
