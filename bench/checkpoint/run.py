"""`./dev bench checkpoint`: checkpoints of sherd beside torch.distributed.checkpoint, on the same tensors, in one run.

    run.py BUILD [--ranks 4] [--runs 3] [--memory /dev/shm] [--disk BUILD/bench] [--seconds-to-plan 20] [--quick] [--check]

Prints a table and writes BUILD/bench/checkpoint.json, a list of {"case", "sherd_s", "python_s", "ratio", "limit_s"}. `ratio` is
python_s / sherd_s: 3 means that sherd takes a third of the time. `limit_s` is a plain write (with sync) or read of as many bytes
by as many processes, in the best of three sizes of calls; for save_async one memory copy. "sherd_cpu_s", "python_cpu_s" and
"limit_cpu_s" are what the processors worked for it, all ranks together, which others on the machine hardly change. Each is the best of the runs, in which
the sides take turns. Cases named "memory" write to a file system in memory, those named "disk" to a disk, and as root load from
there with cold caches. The row "save_peak_extra_mib" has "sherd_mib", "python_mib" and "limit_mib" instead. Both sides:
processes with one thread each; C++ over shared memory; Python over Gloo. --quick: small tensors, to see that it works.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import best, finish, rows_of, say, size_text  # noqa: E402  (stands beside the folders of the benchmarks)

# The name of a case, what it is beside, the least ratio to torch's time, the most times the limit.
CASES = {
    "save": ("save {size}", "write", 3, 1.25),
    "load": ("load {size}", "read", 1.5, 1.25),
    "reshard": ("load {size}, rows as columns", "read", 3, None),
    "elsewhere": ("load {size} on 2 ranks", "read", 3, None),
    "save_small": ("save {small} small tensors", None, 50, None),
    "load_small": ("load {small} small tensors", None, 50, None),
    "async first": ("save_async {size}, the first time", "copy", None, None),
    "async": ("save_async {size}", "copy", None, 1),
    "async, to the end": ("the rest of save_async {size}", "write", None, None),
}
MOST_EXTRA_MIB = 64
PLAN_RANKS = (64, 512, 4096)
PLAN_TENSORS = 1000
PLAN_SECONDS = 2  # on 4,096 ranks
TIMES = ("seconds", "cpu_seconds")
BOTH_SIDES = ("save", "load", "reshard", "save_small", "load_small", "async")


def measured(options, place, folder):
    """What each side took, its best, by case."""
    cold = ["--cold"] if place == "disk" and os.geteuid() == 0 else []
    settings = ["--folder", folder, "--tensors", options.tensors, "--side", options.side, "--small", options.small, *cold]
    sides = {
        "sherd": [options.build / "bench" / "bench_checkpoint"],
        "Python": [sys.executable, HERE / "python_ranks.py"],
    }
    tables = {side: [] for side in sides}
    for run in range(options.runs):
        say("checkpoint", f"{place}, run {run + 1} of {options.runs}: sherd, Python")
        for side, program in sides.items():
            launch = [options.build / "bin" / "sherd", "run", "-n"]
            limits = ["write", "read", "copy"] if side == "sherd" else []
            tables[side].append(rows_of([*launch, options.ranks, "--", *program, *settings, *limits, *BOTH_SIDES]))
            # The small ones first: where caches are dropped, the first load of a process reads the library's code, too.
            elsewhere = rows_of([*launch, 2, "--", *program, *settings, "load_small", "load"])
            tables[side].append([{**row, "case": "elsewhere"} for row in elsewhere if row["case"] == "load"])
            for name in ("large", "small"):
                shutil.rmtree(pathlib.Path(folder) / name)
    found = {}
    for side, rows in tables.items():
        times = [[row for row in table if "seconds" in row] for table in rows]
        found[side] = {key[0]: row for key, row in best(times, ("case",), TIMES).items()}
        sizes = [[row for row in table if "mib" in row] for table in rows]
        found[side]["memory"] = max(row["mib"] for table in sizes for row in table)
    return found


def limit_of(kind, ours, time):
    found = [row[time] for case, row in ours.items() if kind and case.split()[0] == kind]
    return min(found, default=None)


def name_of(options, text, place):
    size = size_text(4 * options.tensors * options.side**2)
    return f"{text.format(size=size, small=options.small)}, {place}"


def row_of(case, ours, theirs, limits):
    theirs = theirs or {"seconds": None, "cpu_seconds": None}
    return {
        "case": case,
        "sherd_s": ours["seconds"],
        "python_s": theirs["seconds"],
        "ratio": round(theirs["seconds"] / ours["seconds"], 2) if theirs["seconds"] else None,
        "limit_s": limits[0],
        "sherd_cpu_s": ours["cpu_seconds"],
        "python_cpu_s": theirs["cpu_seconds"],
        "limit_cpu_s": limits[1],
    }


def rows_at(options, place, found):
    ours, theirs = found["sherd"], found["Python"]
    for case, (text, kind, _, _) in CASES.items():
        limits = [limit_of(kind, ours, time) for time in TIMES]
        yield row_of(name_of(options, text, place), ours[case], theirs[case], limits)
    yield {
        "case": f"save_peak_extra_mib, {place}",
        "sherd_mib": round(ours.pop("memory"), 1),
        "python_mib": round(theirs.pop("memory"), 1),
        "limit_mib": MOST_EXTRA_MIB,
    }


def plan_rows(options):
    """torch's side until it takes longer than it may."""
    program = options.build / "bench" / "bench_checkpoint"
    in_time = True
    for ranks in options.plan_ranks:
        say("checkpoint", f"planning for {ranks} ranks")
        runs = [rows_of([program, "--plan", ranks, "--tensors", PLAN_TENSORS]) for _ in range(options.runs)]
        (ours,) = best(runs, ("case",), TIMES).values()
        python = python_plan(ranks, options.seconds_to_plan) if in_time else None
        in_time = python is not None
        limit = PLAN_SECONDS if ranks == 4096 else None
        yield row_of(f"plan {PLAN_TENSORS} tensors on {ranks} ranks", ours, python, [limit, None])


def python_plan(ranks, seconds):
    """None where it takes longer. What it imports and makes beforehand takes longer than what is measured."""
    words = [sys.executable, HERE / "python_plan.py", str(ranks), str(PLAN_TENSORS)]
    try:
        result = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=4 * seconds + 30)
    except subprocess.TimeoutExpired:
        return None
    (row,) = json.loads(result.stdout)
    return row if row["seconds"] <= seconds else None


def misses(options, rows):
    goals = {name_of(options, text, place): goal for text, _, *goal in CASES.values() for place in ("memory", "disk")}
    for row in rows:
        least, most = goals.get(row["case"], (None, None))
        if least and row["ratio"] < least:
            yield f"{row['case']}: {row['ratio']} times torch's speed, to reach {least}"
        if most and row["sherd_s"] > most * row["limit_s"]:
            yield f"{row['case']}: {row['sherd_s'] / row['limit_s']:.2f} times the limit, to reach {most}"
        if row["case"].startswith("plan") and row["limit_s"] and row["sherd_s"] > row["limit_s"]:
            yield f"{row['case']}: {row['sherd_s']:.2f} s, to reach {row['limit_s']}"
        if row.get("sherd_mib", 0) > MOST_EXTRA_MIB:
            yield f"{row['case']}: {row['sherd_mib']} MiB, to stay under {MOST_EXTRA_MIB}"


def text_of(seconds):
    return f"{seconds * 1e3:,.1f}" if seconds is not None else "-"


COLUMNS = ("sherd_s", "python_s", "ratio", "limit_s", "sherd_cpu_s", "python_cpu_s", "limit_cpu_s")


def print_rows(rows):
    for row in rows:
        if "sherd_mib" in row:
            words = [row["sherd_mib"], row["python_mib"], "", row["limit_mib"]]
        else:
            words = [row[name] or "-" if name == "ratio" else text_of(row[name]) for name in COLUMNS]
        print(f"{row['case']:<46}" + "".join(f"{word:>12}" for word in words), flush=True)


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", default="4")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--disk", help="a folder on a disk")
    parser.add_argument("--seconds-to-plan", type=float, default=20, help="more of torch's planning is not waited for")
    parser.add_argument("--quick", action="store_true", help="small tensors and one run: to see that it works")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()
    options.disk = options.disk or options.build / "bench"
    options.tensors, options.side, options.small, options.plan_ranks = 64, 2048, 2000, PLAN_RANKS
    if options.quick:
        options.runs, options.side, options.small, options.plan_ranks = 1, 128, 20, PLAN_RANKS[:1]
    return options


def main():
    options = options_of()
    print(f"{'milliseconds':<46}" + "".join(f"{name.removesuffix('_s'):>12}" for name in COLUMNS))
    rows = []
    for place, parent in (("memory", options.memory), ("disk", options.disk)):
        with tempfile.TemporaryDirectory(dir=parent, prefix="sherd-bench-") as folder:
            found = list(rows_at(options, place, measured(options, place, folder)))
        print_rows(found)
        rows += found
    for row in plan_rows(options):
        print_rows([row])
        rows.append(row)
    finish("checkpoint", options, rows, [] if options.quick else list(misses(options, rows)))


if __name__ == "__main__":
    main()
