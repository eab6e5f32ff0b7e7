"""`./dev bench random`: what drawing 64 MiB costs beside torch's own operators, on one thread, on all, and on a GPU.

    run.py BUILD [--bytes 67108864] [--runs 7] [--check]

Prints a table and writes BUILD/bench/random.json, a list of {"case", "sherd_s", "peer_s", "ratio"}. `ratio` is
peer_s / sherd_s: 2 means that sherd takes half of the time.
"""

import argparse
import json
import pathlib
import subprocess
import sys

# What is to be reached on the CPU, and the least part of torch's speed on a GPU.
LEAST = {"uniform_ Float": 2, "normal_ Float": 2, "native_dropout Float": 1.5}
LEAST_ON_CUDA = 0.9


def goal(case):
    if case.endswith(", cuda"):
        return LEAST_ON_CUDA
    return LEAST.get(case.split(",")[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--bytes", default=str(64 << 20))
    parser.add_argument("--runs", default="7")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()

    program = options.build / "bench" / "bench_random"
    command = [program, "--bytes", options.bytes, "--runs", options.runs]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    out = options.build / "bench" / "random.json"
    out.write_text(json.dumps(rows, indent=1) + "\n")

    print(f"{'case':40} {'sherd':>10} {'torch':>10} {'ratio':>7}  goal")
    missed = []
    for row in rows:
        least = goal(row["case"])
        print(
            f"{row['case']:40} {row['sherd_s'] * 1e3:7.2f} ms {row['peer_s'] * 1e3:7.2f} ms {row['ratio']:7.2f}"
            f"  {least or ''}"
        )
        if least and row["ratio"] < least:
            missed.append(f"{row['case']}: {row['ratio']:.2f} times torch's speed, to reach {least}")
    print(f"written to {out}")
    for line in missed:
        print(f"random: {line}", file=sys.stderr)
    sys.exit(1 if missed and options.check else 0)


if __name__ == "__main__":
    main()
