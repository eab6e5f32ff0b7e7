"""One case again, with everything that can be seen of it."""

import torch

from sweep import cases, dense, peer
from sweep.cases import CaseId
from sweep.placements import choices
from sweep.trial import run_case
from sweep.worker import prepare


def reproduce(case: CaseId, peer_name: str) -> bool:
    """Prints the inputs, the dense and the sharded values, and the ranks' tracebacks. True where the case is right."""
    prepare()
    op, dtype = cases.operators()[case.operator], cases.DTYPES[case.dtype]
    sample = next((s for s in cases.samples(op, dtype) if s.name == case.sample), None)
    if sample is None:
        raise SystemExit(f"{case}: no sample {case.sample}")
    print(f"{case.operator}({sample.text()})")
    right = dense.solve(sample)
    offered = choices(case.mesh, sample.tensors, dtype, sample.turn)
    choice = next((choice for choice in offered if choice.name == case.placement), None)
    if choice is None:
        raise SystemExit(f"{case}: the sample has the placements {', '.join(c.name for c in offered)}")
    print(f"inputs: {choice}")
    outcome, reports = run_case(peer.load(peer_name), right, case.mesh, choice)
    told: dict[str, list[int]] = {}
    for rank, report in enumerate(reports):
        if report.error is not None:
            told.setdefault(report.traceback, []).append(rank)
    for text, ranks in told.items():
        print(f"\nranks {', '.join(map(str, ranks))}:\n{text}")
    if not told:
        _print_values("result", right.results.values, reports[0].values, outcome.outputs)
        _print_values("gradient", right.results.grads, reports[0].grads, [])
    print(f"\n{outcome.outcome} {outcome.phase} {outcome.ranks and 'on ranks: ' + outcome.ranks}\n{outcome.message}")
    return outcome.good


def _print_values(name: str, expected: list, actual: list, placements: list[str]) -> None:
    torch.set_printoptions(threshold=200, linewidth=160)
    for number, (dense_value, value) in enumerate(zip(expected, actual)):
        place = f" {placements[number]}" if number < len(placements) else ""
        print(f"\n{name} {number}{place}\ndense:\n{dense_value}\nsharded:\n{value}")
