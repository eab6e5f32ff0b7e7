"""python -m sweep: see --help."""

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from sweep import cases, driver, operators_page, peer, quick, report, results, rules
from sweep.cases import CaseId
from sweep.placements import MESHES
from sweep.reproduce import reproduce
from sweep.worker import Task


def main() -> int:
    options = _arguments()
    if options.case:
        return 0 if reproduce(options.case, options.peer[0]) else 1
    if options.quick:
        return _quick(options)
    started = time.monotonic()
    if not options.report_only:
        tasks = _tasks(options)
        _run(tasks, results.ResultFile(options.out, options.fresh), options)
    records = results.read(options.out)
    peers = report.split_by_peer(records)
    if options.faults == "gathered":
        print(report.gathered(peers), end="\n\n")
    elif options.faults:
        tell = {"operators": report.faults, "causes": report.causes}[options.faults]
        for name in options.peer:
            print(tell(peers.get(name, [])), end="\n\n")
    print(report.summary(records))
    print(f"{time.monotonic() - started:.0f} s; results in {options.out}")
    if options.page:
        options.page.write_text(operators_page.page(records, rules.rules_of))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sweep", description="torch's operators on sharded tensors")
    parser.add_argument("--ops", default="", metavar="REGEX", help="operators whose name matches in part")
    parser.add_argument("--dtypes", type=_list_of(cases.DTYPES), default=["float32"], help="comma-separated")
    parser.add_argument("--meshes", type=_list_of(MESHES), default=["4"], help="comma-separated: 4, 2x2")
    parser.add_argument("--peer", type=_list_of(peer.NAMES), default=["sherd"], help="comma-separated: sherd, torch")
    parser.add_argument("--all", action="store_true", help="sherd on every type and mesh, torch beside it for float32 on 4")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--out", type=Path, default=Path("build/sweep.jsonl"), help="results; what is there is not run")
    parser.add_argument("--fresh", action="store_true", help="forget all earlier results")
    parser.add_argument("--again", action="store_true", help="run what is done already, too; the last result counts")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument(
        "--faults",
        choices=["operators", "causes", "gathered"],
        nargs="?",
        const="operators",
        help="list what is not right, by operator or by message; or what torch alone keeps sharded",
    )
    parser.add_argument("--page", type=Path, help="write docs/operators.md here")
    parser.add_argument("--quick", action="store_true", help="a small part; fails on anything that is not right")
    case_form = "OPERATOR:DTYPE:SAMPLE:PLACEMENT:MESH"
    parser.add_argument("--case", type=CaseId.parse, metavar=case_form, help="run it alone, and show all of it")
    return parser.parse_args()


def _list_of(allowed):  # noqa: ANN001, ANN202 (argparse wants a function)
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def _tasks(options: argparse.Namespace) -> list[Task]:
    wanted = re.compile(options.ops)
    if options.all:
        one, every = argparse.Namespace(**vars(options)), argparse.Namespace(**vars(options))
        every.peer, every.dtypes, every.meshes, every.all = ["sherd"], list(cases.DTYPES), list(MESHES), False
        one.peer, one.dtypes, one.meshes, one.all = ["sherd", "torch"], ["float32"], ["4"], False
        return list(dict.fromkeys(_tasks(one) + _tasks(every)))
    return [
        Task(peer=peer_name, operator=name, dtype=dtype, mesh=mesh)
        for peer_name in options.peer
        for mesh in options.meshes
        for dtype in options.dtypes
        for name, op in cases.operators().items()
        if wanted.search(name) and cases.supports(op, cases.DTYPES[dtype])
    ]


def _run(tasks: list[Task], file: results.ResultFile, options: argparse.Namespace) -> None:
    def progress(done: int, total: int, task: Task) -> None:
        if done % 20 == 0 or done == total:
            print(f"{done} of {total} ({task.peer} {task.operator} {task.dtype})", file=sys.stderr)

    driver.run(tasks, file, driver.Options(options.jobs, options.again, progress))


def _quick(options: argparse.Namespace) -> int:
    tasks = [
        Task(options.peer[0], name, "float32", "4", samples=quick.SAMPLES, choices=quick.CHOICES)
        for name in quick.OPERATORS
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quick.jsonl"
        _run(tasks, results.ResultFile(path), options)
        records = results.read(path)
    print(report.summary(records))
    print(report.faults(records))
    measured = report.by_operator(records)
    unmeasured = [name for name in quick.OPERATORS if name not in measured]
    if unmeasured:
        print(f"not measured: {', '.join(unmeasured)}")
    return 0 if not unmeasured and all(operator.fully_right for operator in measured.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
