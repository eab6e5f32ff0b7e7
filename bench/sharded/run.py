"""`./dev bench sharded`: ShardedTensors of sherd beside torch's, processes of one host with one thread each, in one run.

    run.py BUILD [--ranks 4] [--sizes BYTES,...] [--tensors 1000] [--runs 2] [--seconds 0.5] [--check]

Prints a table and writes BUILD/bench/sharded.json, a list of {"case", "sherd_s", "python_s", "ratio"}. `ratio` is
python_s / sherd_s: 4 means that sherd takes a quarter of the time. Both sides: C++ over shared memory; Python over Gloo.
The last row has "bytes" instead, what the memory of one rank of 4,096 grows by with so many tensors, and
"python_bytes_extrapolated": torch's from fewer tensors, "python_tensors_measured".
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import best, finish, rows_of, say, size_text, time_text  # noqa: E402  (stands beside the folders of the benchmarks)

# What is to be reached: the least ratio to torch's ShardedTensor, and the most memory.
LEAST = {"gather 64 MiB 4 ranks": 4, "reshard, rows to columns 64 MiB 4 ranks": 5, "1000 from local shards 4 ranks": 20}
MOST_BYTES = 100 << 20
KEY = ("case", "bytes", "ranks")
PYTHON_TENSORS = 20


def timed_rows(ours, theirs):
    for key, mine in sorted(ours.items()):
        python = theirs[key]["seconds"]
        size = f" {size_text(mine['bytes'])}" if mine["bytes"] else ""
        yield {
            "case": f"{mine['case']}{size} {mine['ranks']} ranks",
            "sherd_s": mine["seconds"],
            "python_s": python,
            "ratio": round(python / mine["seconds"], 2),
        }


def memory_row(mine, python):
    per_tensor = python["resident_bytes"] / python["tensors"]
    return {
        "case": f"metadata of {mine['tensors']} tensors, {mine['ranks']} ranks",
        "bytes": mine["resident_bytes"],
        "sherd_s": mine["seconds"],
        "python_bytes_extrapolated": round(per_tensor * mine["tensors"]),
        "python_tensors_measured": python["tensors"],
    }


def misses(rows):
    for row in rows:
        least = LEAST.get(row["case"])
        if least and row["ratio"] < least:
            yield f"{row['case']}: {row['ratio']} times torch's, to reach {least}"
        if row.get("bytes", 0) > MOST_BYTES:
            yield f"{row['case']}: {row['bytes']} bytes, to stay under {MOST_BYTES}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", default="4")
    parser.add_argument("--sizes", default=str(64 << 20))
    parser.add_argument("--tensors", default="1000")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case and side")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()

    launch = [options.build / "bin" / "sherd", "run", "-n", options.ranks, "--"]
    program = options.build / "bench" / "bench_sharded"
    settings = ["--sizes", options.sizes, "--tensors", options.tensors, "--seconds", options.seconds]
    python_ranks = [sys.executable, HERE / "python_ranks.py"]
    ours, theirs = [], []
    for run in range(options.runs):
        say("sharded", f"run {run + 1} of {options.runs}: sherd, Python")
        ours.append(rows_of([*launch, program, *settings]))
        theirs.append(rows_of([*launch, *python_ranks, options.sizes, options.tensors, options.seconds]))
    say("sharded", "what a rank of 4,096 remembers")
    (memory,) = rows_of([program, "--metadata", "--tensors", options.tensors])
    (python_memory,) = rows_of([*python_ranks, "metadata", PYTHON_TENSORS])

    rows = list(timed_rows(best(ours, KEY), best(theirs, KEY)))
    print(f"{'case':<46}{'sherd us':>12}{'torch us':>12}{'ratio':>8}")
    for row in rows:
        print(f"{row['case']:<46}{time_text(row['sherd_s']):>12}{time_text(row['python_s']):>12}{row['ratio']:>8}")
    rows.append(memory_row(memory, python_memory))
    row = rows[-1]
    print(
        f"{row['case']}: {row['bytes']:,} bytes; torch's, from {row['python_tensors_measured']} tensors: "
        f"{row['python_bytes_extrapolated']:,}"
    )
    finish("sharded", options, rows, list(misses(rows)))


if __name__ == "__main__":
    main()
