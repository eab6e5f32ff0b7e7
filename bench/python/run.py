"""`./dev bench python`: what sherd adds to an operator called from Python, beside what torch.distributed.tensor adds.

    run.py BUILD [--device cuda] [--runs 5] [--iterations 20000] [--check]

The cases of `./dev bench dispatch`, each library in a process of its own. Prints a table and writes
BUILD/bench/python.json, in the form of dispatch.json: instructions are not counted here, and null.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).parent.parent
CASES = BENCH / "dispatch" / "python_cases.py"
sys.path.insert(0, str(BENCH))
from rows import make_row  # noqa: E402  (stands beside the folders of the benchmarks)

# What is to be reached.
LARGEST_RATIO = 1 / 5  # of what torch's DTensor adds
LARGEST_STEP = 1 / 2  # of the time of its training step


def times(library, options):
    """{case: {"local_ns", "distributed_ns"}}"""
    print(f"python: timing {library}", file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(options.build.resolve() / "python")
    command = [sys.executable, CASES, library, "--device", options.device]
    command += ["--runs", str(options.runs), "--iterations", str(options.iterations)]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {row["case"]: row for row in json.loads(result.stdout.strip().splitlines()[-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20000)
    parser.add_argument("--check", action="store_true", help="exit code 1 where a limit is missed")
    options = parser.parse_args()

    ours, theirs = times("sherd", options), times("torch", options)
    rows = []
    head = f"{'case':<12}{'local':>10}{'sherd':>10}{'extra':>10}{'torch':>12}{'its extra':>12}{'ratio':>9}"
    print(head + "\n" + "-" * len(head))
    for case, mine in ours.items():
        row = make_row(case, (mine["local_ns"], mine["distributed_ns"]), theirs[case], None)
        rows.append(row)
        print(
            f"{case:<12}{row['local_ns']:>10,.0f}{row['sherd_ns']:>10,.0f}{row['sherd_ns'] - row['local_ns']:>10,.0f}"
            f"{row['python_ns']:>12,.0f}{row['python_ns'] - row['python_local_ns']:>12,.0f}{row['extra_ratio']:>9.4f}"
        )
    worst = max(rows, key=lambda row: row["extra_ratio"])
    step = ours["step"]["distributed_ns"] / theirs["step"]["distributed_ns"]
    claims = [
        (f"largest ratio to torch's extra ({worst['case']})", worst["extra_ratio"], LARGEST_RATIO),
        ("training step over torch's DTensor", step, LARGEST_STEP),
    ]
    print(f"\n{'to reach':<48}{'measured':>12}{'limit':>12}")
    for claim, measured, limit in claims:
        print(f"{claim:<48}{measured:>12.3f}{limit:>12.3f}{'' if measured <= limit else '   missed'}")

    folder = options.build / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "python.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"python: wrote {folder / 'python.json'}", file=sys.stderr)
    if options.check and any(measured > limit for _, measured, limit in claims):
        sys.exit(1)


if __name__ == "__main__":
    main()
