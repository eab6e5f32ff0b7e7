"""A process that runs cases until it is told to stop, or hangs, or crashes: the driver looks after it.

It reads tasks from its input, one JSON object a line, and writes what happens, as it happens:

    {"begin": "mm:float32:0:dim0:4"}              before a case ("dense" for a placement: before the dense call)
    {"case": "mm:float32:0:dim0:4", "peer": ...}  after it
    {"end": true}                                 after the task
"""

import ctypes
import dataclasses
import json
import os
import signal
import sys
import warnings
from dataclasses import dataclass
from typing import Any, TextIO

import torch

from sweep import cases, dense, peer
from sweep.cases import CaseId
from sweep.placements import choices
from sweep.trial import Outcome, run_case

_LONGEST_MESSAGE = 1500
_PR_SET_PDEATHSIG = 1  # of Linux


@dataclass(frozen=True)
class Task:
    """All cases of an operator in one type on one mesh."""

    peer: str
    operator: str
    dtype: str
    mesh: str
    samples: int = cases.SAMPLES_PER_OPERATOR
    choices: int | None = None  # at most, per sample


def run_task(asked: peer.Peer, task: Task, passed_over: set[str], say: Any) -> None:
    """`passed_over`: cases that were done, or ended a worker, before."""
    op, dtype = cases.operators()[task.operator], cases.DTYPES[task.dtype]

    def begins(sample: str, placement: str) -> CaseId | None:
        case = CaseId(task.operator, task.dtype, sample, placement, task.mesh)
        if str(case) in passed_over:
            return None
        say({"begin": str(case)})
        return case

    def ended(case: CaseId, outcome: Outcome) -> None:
        short = dataclasses.replace(outcome, message=outcome.message[:_LONGEST_MESSAGE])
        kept = {name: value for name, value in dataclasses.asdict(short).items() if value}
        say({"case": str(case), "peer": task.peer, **kept})

    for sample in cases.samples(op, dtype)[: task.samples]:
        case = begins(sample.name, "dense")
        if case is None:
            continue
        try:
            right = dense.solve(sample)
        except dense.NotMeasurable as why:
            ended(case, Outcome("skipped", str(why)))
            continue
        for choice in choices(task.mesh, sample.tensors, dtype, sample.turn)[: task.choices]:
            case = begins(sample.name, choice.name)
            if case is not None:
                ended(case, run_case(asked, right, task.mesh, choice)[0])


def main() -> None:
    """Arguments: the name of the peer."""
    # What operators and libraries print must not come between the lines for the driver.
    answers: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker that hangs ends with its driver
    prepare()
    asked = peer.load(sys.argv[1])

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        run_task(asked, Task(**order["task"]), set(order["passed_over"]), say)
        say({"end": True})
    answers.flush()
    os._exit(0)  # libraries' own ends are not what is tested here


def prepare() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


if __name__ == "__main__":
    main()
