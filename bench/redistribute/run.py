"""`./dev bench redistribute`: what a redistribution costs between ranks of one host, beside torch's DTensor over Gloo.

    run.py BUILD [--ranks 2,4] [--sizes 4096,67108864] [--runs 2] [--seconds 0.2] [--check]

Prints a table and writes BUILD/bench/redistribute.json, a list of {"case", "sherd_s", "python_s", "ratio", "bytes_moved",
"bytes_needed", "peak_bytes", "threads_s"}. `ratio` is python_s / sherd_s: 5 means that sherd takes a fifth of the time; it
and python_s are null where torch cannot do it. `bytes_moved` is what a rank receives on average, `bytes_needed` what it wants
and does not have, `peak_bytes` the memory that the call takes on rank 0, the result included. `threads_s`: ranks as threads.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import best, finish, options_of, run_sides, size_text, time_text  # noqa: E402  (stands beside the folders of the benchmarks)

# What is to be reached: the least ratio to torch's DTensor, and how much slower uneven may be.
LEAST = {"S(0) to S(1) 64 MiB 4 ranks": 5, "1000 of 4 KiB, S(0) to S(1) 3 MiB 4 ranks": 20}
MOST_UNEVEN = 1.1
MOST_THREADS = 1.25  # of the time between processes, as for transports
KEY = ("case", "bytes", "ranks")


def misses(rows):
    by_case = {row["case"]: row for row in rows}
    for row in rows:
        if row["case"] in LEAST and row["ratio"] is not None and row["ratio"] < LEAST[row["case"]]:
            yield f"{row['case']}: {row['ratio']} times torch's, to reach {LEAST[row['case']]}"
        if row["bytes_moved"] != row["bytes_needed"]:
            yield f"{row['case']}: {row['bytes_moved']} bytes moved, {row['bytes_needed']} needed"
        if row["threads_s"] > MOST_THREADS * row["sherd_s"]:
            yield f"{row['case']}: threads take {row['threads_s'] / row['sherd_s']:.2f} times as long, to reach 1"
        if ", uneven" in row["case"]:
            even = by_case[row["case"].replace(", uneven", "")]
            if row["sherd_s"] > MOST_UNEVEN * even["sherd_s"]:
                yield f"{row['case']}: {row['sherd_s'] / even['sherd_s']:.2f} times the even one, to reach {MOST_UNEVEN}"


def main():
    options = options_of(__doc__, "4096,1048576,16777216,67108864,268435456")
    sides = run_sides("redistribute", options, HERE / "python_ranks.py")
    processes, threads, peers = (best(tables, KEY) for tables in sides)

    rows = []
    head = f"{'case':<52}{'sherd':>12}{'torch':>12}{'ratio':>8}{'moved':>12}{'needed':>12}{'threads':>12}"
    print(head + "\n" + "-" * len(head))
    for key, mine in sorted(processes.items(), key=lambda item: (item[0][2], item[0][0], item[0][1])):
        python = peers[key]["seconds"]
        row = {
            "case": f"{mine['case']} {size_text(mine['bytes'])} {mine['ranks']} ranks",
            "sherd_s": mine["seconds"],
            "python_s": python,
            "ratio": None if python is None else round(python / mine["seconds"], 2),
            "bytes_moved": mine["bytes_moved"],
            "bytes_needed": mine["bytes_needed"],
            "peak_bytes": mine["peak_bytes"],
            "threads_s": threads[key]["seconds"],
        }
        rows.append(row)
        print(
            f"{row['case']:<52}{time_text(row['sherd_s']):>12}{time_text(python):>12}{row['ratio'] or '-':>8}"
            f"{row['bytes_moved']:>12,}{row['bytes_needed']:>12,}{time_text(row['threads_s']):>12}"
        )
    print("times in us per call, bytes per rank")
    finish("redistribute", options, rows, list(misses(rows)))


if __name__ == "__main__":
    main()
