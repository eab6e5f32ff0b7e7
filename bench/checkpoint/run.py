"""`./dev bench checkpoint`: checkpoints of sherd beside torch.distributed.checkpoint, on the same tensors, in one run.

    run.py BUILD [--ranks 4] [--runs 3] [--memory /dev/shm] [--disk BUILD/bench] [--seconds-to-plan 20]
           [--cases PATTERN] [--quick] [--check]

Prints a table and writes BUILD/bench/checkpoint.json, a list of {"case", "sherd_s", "python_s", "ratio", "limit_s"}. `ratio` is
python_s / sherd_s: 3 means that sherd takes a third of the time. `limit_s` is a plain write (with sync) or read of as many bytes
by as many processes, in the best of three sizes of calls; for save_async one memory copy. "sherd_cpu_s", "python_cpu_s" and
"limit_cpu_s" are what the processors worked for it, all ranks together, which others on the machine hardly change. Each is the best of the runs, in which
the sides take turns. Cases named "memory" write to a file system in memory, those named "disk" to a disk, and as root load from
there with cold caches. The row "save_peak_extra_mib" has "sherd_mib", "python_mib" and "limit_mib" instead. Both sides:
processes with one thread each; C++ over shared memory; Python over Gloo. --cases measures the rows whose names match and leaves the
others in the file, so that a run can be done piece by piece. --quick: small tensors, to see that it works.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import best, finish, is_wanted, rows_of, say, size_text  # noqa: E402  (stands beside the folders of the benchmarks)

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
PLACES = ("memory", "disk")
PLAN_RANKS = (64, 512, 4096)
PLAN_TENSORS = 1000
PLAN_SECONDS = 2  # on 4,096 ranks
TIMES = ("seconds", "cpu_seconds")
# What the programs are told to do for a case, in this order.
STEPS = ("save", "load", "reshard", "save_small", "load_small", "async")
STEPS_OF = {
    "save": {"save"},
    "load": {"save", "load"},
    "reshard": {"save", "reshard"},
    "elsewhere": {"save"},
    "save_small": {"save_small"},
    "load_small": {"save_small", "load_small"},
    "async first": {"async"},
    "async": {"async"},
    "async, to the end": {"async"},
}


def measured(options, place, folder, wanted):
    """What each side took for the wanted cases, its best, by case."""
    cold = ["--cold"] if place == "disk" and os.geteuid() == 0 else []
    settings = ["--folder", folder, "--tensors", options.tensors, "--side", options.side, "--small", options.small, *cold]
    sides = {
        "sherd": [options.build / "bench" / "bench_checkpoint"],
        "Python": [sys.executable, HERE / "python_ranks.py"],
    }
    steps = [step for step in STEPS if any(step in STEPS_OF[case] for case in wanted)]
    limits = sorted({CASES[case][1] for case in wanted} - {None}, key=("write", "read", "copy").index)
    tables = {side: [] for side in sides}
    for run in range(options.runs):
        say("checkpoint", f"{place}, run {run + 1} of {options.runs}: sherd, Python")
        for side, program in sides.items():
            launch = [options.build / "bin" / "sherd", "run", "-n"]
            asked = [*(limits if side == "sherd" else []), *steps]
            # The small ones first: where caches are dropped, the first load of a process reads the library's code, too.
            elsewhere = ["save_small", "load_small", "load"] if "elsewhere" in wanted else []
            tables[side].append(rows_of([*launch, options.ranks, "--", *program, *settings, *asked]))
            if elsewhere:
                rows = rows_of([*launch, 2, "--", *program, *settings, *elsewhere])
                tables[side].append([{**row, "case": "elsewhere"} for row in rows if row["case"] == "load"])
            for name in ("large", "small"):
                shutil.rmtree(pathlib.Path(folder) / name, ignore_errors=True)
    found = {}
    for side, rows in tables.items():
        times = [[row for row in table if "seconds" in row] for table in rows]
        found[side] = {key[0]: row for key, row in best(times, ("case",), TIMES).items()}
        found[side]["memory"] = max((row["mib"] for table in rows for row in table if "mib" in row), default=None)
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


def memory_name(place):
    return f"save_peak_extra_mib, {place}"


def plan_name(ranks):
    return f"plan {PLAN_TENSORS} tensors on {ranks} ranks"


def every_case(options):
    """The names of all rows, in their order."""
    at_places = [[*(name_of(options, text, place) for text, *_ in CASES.values()), memory_name(place)] for place in PLACES]
    return [*itertools.chain(*at_places), *map(plan_name, options.plan_ranks)]


def rows_at(options, place, parent):
    """The wanted rows of a place. The memory that a save takes is measured with the save."""
    wanted = {case for case, (text, *_) in CASES.items() if is_wanted(options, name_of(options, text, place))}
    if is_wanted(options, memory_name(place)):
        wanted.add("save")
    if not wanted:
        return
    with tempfile.TemporaryDirectory(dir=parent, prefix="sherd-bench-") as folder:
        found = measured(options, place, folder, wanted)
    ours, theirs = found["sherd"], found["Python"]
    memory = {f"{side}_mib": round(found[name].pop("memory") or 0, 1) for side, name in (("sherd", "sherd"), ("python", "Python"))}
    for case, (text, kind, _, _) in CASES.items():
        if case in wanted:
            limits = [limit_of(kind, ours, time) for time in TIMES]
            yield row_of(name_of(options, text, place), ours[case], theirs[case], limits)
    if "save" in wanted:
        yield {"case": memory_name(place), **memory, "limit_mib": MOST_EXTRA_MIB}


def plan_rows(options):
    """torch's side until it takes longer than it may."""
    program = options.build / "bench" / "bench_checkpoint"
    in_time = True
    for ranks in options.plan_ranks:
        if not is_wanted(options, plan_name(ranks)):
            continue
        say("checkpoint", f"planning for {ranks} ranks")
        runs = [rows_of([program, "--plan", ranks, "--tensors", PLAN_TENSORS]) for _ in range(options.runs)]
        (ours,) = best(runs, ("case",), TIMES).values()
        python = python_plan(ranks, options.seconds_to_plan) if in_time else None
        in_time = python is not None
        limit = PLAN_SECONDS if ranks == 4096 else None
        yield row_of(plan_name(ranks), ours, python, [limit, None])


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
    goals = {name_of(options, text, place): goal for text, _, *goal in CASES.values() for place in PLACES}
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
    parser.add_argument("--cases", metavar="PATTERN", help="only cases whose names match; the others' rows stay in the file")
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
    for place, parent in zip(PLACES, (options.memory, options.disk)):
        found = list(rows_at(options, place, parent))
        print_rows(found)
        rows += found
    for row in plan_rows(options):
        print_rows([row])
        rows.append(row)
    finish("checkpoint", options, rows, [] if options.quick else list(misses(options, rows)), every_case(options))


if __name__ == "__main__":
    main()
