"""Benchmarks whose ranks are processes: running them beside Python's, and the best of several runs."""

import json
import os
import subprocess
import sys


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
