"""One case: run on the ranks of a peer, and judged against the dense results."""

import dataclasses
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

import torch

from sweep.compare import BAD_LAST, Verdict, compare
from sweep.dense import Dense, Results, cotangent, fresh, gradients, outputs_of, same_values
from sweep.peer import Peer
from sweep.placements import MESHES, Choice, Placements

# A rank that fails waits this long for the others to fail too, before it makes them: so an error that all ranks meet is
# not taken for one that some meet.
_PATIENCE_S = 0.5

# "right" and "rounding" (the order of a sum explains the difference) are good. "hang" and "crash" are found by the
# driver; "skipped" cases have nothing to compare.
OUTCOMES = ("right", "rounding", "wrong", "error", "hang", "crash", "skipped")


@dataclass
class Outcome:
    outcome: str
    message: str = ""
    phase: str = ""  # where it failed: "inputs", "forward", "gather" or "backward"
    ranks: str = ""  # of an error: "all", or the ranks that met it
    inputs: str = ""  # placements, as text
    outputs: list[str] = field(default_factory=list)  # of each result: "(S0)", or "plain"

    @property
    def good(self) -> bool:
        return self.outcome in ("right", "rounding", "skipped")


@dataclass
class RankReport:
    phase: str = "inputs"
    values: list[Any] = field(default_factory=list)
    placements: list[Placements | None] = field(default_factory=list)
    grads: list[torch.Tensor | None] = field(default_factory=list)
    error: BaseException | None = None
    traceback: str = ""
    ended: bool = False


def run_case(peer: Peer, dense: Dense, mesh: str, choice: Choice) -> tuple[Outcome, list[RankReport]]:
    reports = run_ranks(peer, dense, mesh, choice)
    outcome = _judge(peer, dense, reports)
    texts = ["plain" if p is None else "(" + ", ".join(p) + ")" for p in reports[0].placements]
    return dataclasses.replace(outcome, inputs=str(choice), outputs=texts), reports


def run_ranks(peer: Peer, dense: Dense, mesh: str, choice: Choice) -> list[RankReport]:
    shape = MESHES[mesh]
    reports = [RankReport() for _ in range(torch.Size(shape).numel())]

    def body(rank: int) -> None:
        report = reports[rank]
        try:
            _run_rank(peer, dense, peer.mesh(shape), choice, report)
        except BaseException as error:
            report.error, report.traceback = error, traceback.format_exc()
            report.ended = True
            patience = time.monotonic() + _PATIENCE_S
            while not all(other.ended for other in reports) and time.monotonic() < patience:
                time.sleep(0.001)
            raise
        finally:
            report.ended = True

    torch.manual_seed(3)
    try:
        peer.run(len(reports), body)
    except Exception:
        if all(report.error is None for report in reports):
            raise
    return reports


def _run_rank(peer: Peer, dense: Dense, mesh: Any, choice: Choice, report: RankReport) -> None:
    sample, right = dense.sample, dense.results
    inputs = []
    for tensor, placements in zip(fresh(sample), choice.of_tensor):
        placed = peer.place(tensor.detach(), mesh, placements)
        inputs.append(placed.requires_grad_(tensor.requires_grad))

    report.phase = "forward"
    outputs = outputs_of(sample, inputs)

    report.phase = "gather"
    with torch.no_grad():
        results = outputs + [inputs[i] for i in right.written]
        report.placements = [peer.placements(x) for x in results if isinstance(x, torch.Tensor)]
        report.values = [peer.whole(x.detach()) if isinstance(x, torch.Tensor) else x for x in results]

    report.phase = "backward"
    if right.differentiable and len(right.differentiable) <= len(outputs):
        chosen = [outputs[i] for i in right.differentiable]
        cotangents = [
            _cotangent_like(peer, mesh, i, outputs[i], right.values[i].shape) for i in right.differentiable
        ]
        grads = gradients(chosen, inputs, cotangents)
        report.grads = [peer.whole(grad) if grad is not None else None for grad in grads]
    report.phase = "done"


def _cotangent_like(peer: Peer, mesh: Any, number: int, output: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Placed as the output is: so do gradients come back that flow from it."""
    whole = cotangent(number, shape, output.dtype)
    placements = peer.placements(output)
    if placements is None:
        return whole
    return peer.place(whole, mesh, tuple(p if p.startswith("S") and p[1:].isdigit() else "R" for p in placements))


def _judge(peer: Peer, dense: Dense, reports: list[RankReport]) -> Outcome:
    failed = [rank for rank, report in enumerate(reports) if report.error is not None]
    own = [rank for rank in failed if not peer.is_echo(reports[rank].error)]
    if failed:
        first = reports[(own or failed)[0]]
        ranks = "all" if len(own) == len(reports) else " ".join(map(str, own))
        return Outcome("error", f"{type(first.error).__name__}: {first.error}", first.phase, ranks)
    fault = _disagreement(peer, dense, reports)
    if fault and dense.random:
        return Outcome("wrong", fault)
    verdicts = [_verdict(dense, report) for report in (reports if fault else reports[:1])]
    worst = max(verdicts, key=lambda verdict: BAD_LAST.index(verdict.outcome))
    if fault and worst.outcome == "right":  # a few operators differ from call to call on one device, too
        return Outcome("rounding", fault)
    return Outcome(worst.outcome, worst.message)


def _verdict(dense: Dense, report: RankReport) -> Verdict:
    right = dense.results
    return compare(dense, Results(report.values, right.differentiable, report.grads, right.written))


def _disagreement(peer: Peer, dense: Dense, reports: list[RankReport]) -> str:
    """Ranks that gather the same tensor have the same values."""
    if dense.unspecified or dense.draws_plain or (dense.random and peer.shares_generator):
        return ""
    first = reports[0]
    for rank, other in enumerate(reports[1:], start=1):
        for kind, ours, theirs in (("result", first.values, other.values), ("gradient", first.grads, other.grads)):
            if dense.random and kind == "gradient":
                continue
            for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                    if a.shape != b.shape or a.dtype != b.dtype:
                        return f"{kind} {number}: {list(b.shape)} on rank {rank}, {list(a.shape)} on rank 0"
                    if not same_values(a, b):
                        return f"{kind} {number}: rank {rank} has other values than rank 0"
                elif type(a) is not type(b):
                    return f"{kind} {number}: {b!r} on rank {rank}, {a!r} on rank 0"
    return ""
