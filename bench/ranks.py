"""Benchmarks whose ranks are processes: running them beside Python's, and the best of several runs."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys


def options_of(description, sizes):
    """The command line of a benchmark; `sizes` are those it measures unless told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default=sizes)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each case and side")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    return parser.parse_args()


def run_sides(name, options, python_ranks):
    """What bench_<name> prints with its ranks as processes and as threads, and what `python_ranks` does: three lists of
    tables, one for each number of ranks and run."""
    program = options.build / "bench" / f"bench_{name}"
    settings = ["--sizes", options.sizes, "--seconds", options.seconds]
    processes, threads, peers = [], [], []
    for ranks in options.ranks.split(","):
        launch = [options.build / "bin" / "sherd", "run", "-n", ranks, "--"]
        for run in range(options.runs):
            say(name, f"{ranks} ranks, run {run + 1} of {options.runs}: processes, threads, Python")
            processes.append(rows_of([*launch, program, *settings]))
            threads.append(rows_of([program, "--threads", ranks, *settings]))
            peers.append(rows_of([*launch, sys.executable, python_ranks, options.sizes, options.seconds]))
    return processes, threads, peers


def is_wanted(options, case):
    """Whether the pattern of --cases takes this case; without one every case is taken."""
    return options.cases is None or re.search(options.cases, case) is not None


def finish(name, options, rows, missed, every_case=()):
    """Writes the rows to a file and says which goals were missed. Where --cases chose some, the file keeps its other rows, in
    the order of `every_case`: so a run can be done piece by piece."""
    for line in missed:
        print(f"missed: {line}")
    file = options.build / "bench" / f"{name}.json"
    if getattr(options, "cases", None) is not None and file.exists():
        measured = {row["case"]: row for row in [*json.loads(file.read_text()), *rows]}
        rows = [measured[case] for case in every_case if case in measured]
    file.write_text(json.dumps(rows, indent=1) + "\n")
    say(name, f"wrote {file}")
    if options.check and missed:
        sys.exit(1)


def say(name, text):
    print(f"{name}: {text}", file=sys.stderr, flush=True)


def rows_of(command):
    """The rows that rank 0 prints, one JSON list among other output. One thread a rank."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [str(word) for word in command]
    result = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed with {result.returncode}: {' '.join(words)}")
    line = next(line for line in result.stdout.splitlines() if "[{" in line)
    return json.loads(line[line.index("[{") :])


def best(tables, names, times=("seconds",)):
    """The least times of several runs, by the values of `names`."""
    found = {}
    for row in (row for table in tables for row in table):
        kept = found.setdefault(tuple(row[name] for name in names), dict(row))
        for time in times:
            if row.get(time) is not None:
                kept[time] = min(kept[time], row[time])
    return found


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def time_text(seconds):
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:,.1f}" if seconds < 1e-2 else f"{seconds * 1e6:,.0f}"
