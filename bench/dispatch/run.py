"""`./dev bench dispatch`: what sherd adds to an operator, beside what Python's DTensor of the same torch adds.

    run.py BUILD [--device cuda] [--runs 5] [--iterations 20000] [--check]

Prints a table and writes BUILD/bench/dispatch.json, a list of {"case", "local_ns", "sherd_ns", "python_local_ns",
"python_ns", "extra_ratio", "extra_instructions"}. Instructions are counted by callgrind; where there is no valgrind,
and for a GPU, they are null. BUILD/bench/dispatch_limits.json has what the table says under it.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from rows import make_row  # noqa: E402  (stands beside the folders of the benchmarks)

# What is to be reached.
LARGEST_RATIO = 1 / 20  # of what Python's DTensor adds
IN_PLACE_INSTRUCTIONS = 1300
OUTPUT_INSTRUCTIONS = 2600  # per new output tensor
LARGEST_STEP = 1.15  # times the local step
LARGEST_MISS_US = 50
LARGEST_LOAD_MS = 30

# New output tensors per case. layer_norm makes two more, which its caller drops.
OUTPUTS = {"add_": 0, "layer_norm": 3}


def say(text):
    print(f"dispatch: {text}", file=sys.stderr, flush=True)


def run(command, **options):
    """What the command prints, on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [str(word) for word in command]
    result = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, **options
    )
    if result.returncode != 0:
        sys.exit(f"dispatch: failed with {result.returncode}: {' '.join(words)}")
    return result.stdout


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def by_case(rows):
    return {row["case"]: row for row in rows}


def count_instructions(program, iterations):
    """Instructions per call and case, {case: {"local": n, "sherd": n}}, or None without valgrind.

    The program calls a mark three times per case and side, and callgrind writes what it counted at each: the second
    time for `iterations` calls, the third for twice as many.
    """
    if shutil.which("valgrind") is None:
        say("no valgrind: instructions are not counted (apt-get install valgrind)")
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--dump-before=dispatch_bench_mark", "--compress-strings=yes"]
        command += [f"--callgrind-out-file={folder}/out", program, "instructions", "--iterations", iterations]
        order = last_json(run(command, stderr=subprocess.DEVNULL))
        totals = {}
        for path in pathlib.Path(folder).glob("out.*"):
            found = re.search(r"^totals: (\d+)", path.read_text(errors="replace"), re.MULTILINE)
            totals[int(path.suffix[1:])] = int(found.group(1))
        counts = {}
        for i, entry in enumerate(order):
            once, twice = totals[3 * i + 2], totals[3 * i + 3]
            counts.setdefault(entry["case"], {})[entry["side"]] = (twice - once) / entry["iterations"]
        return counts


def load_times(tools, program):
    """Milliseconds that torch takes to load, and sherd over it: the best of ten processes."""
    linked = re.findall(r"(\S+) => (\S+)", run(["ldd", program]))
    torch = [path for name, path in linked if name.startswith("libtorch")]
    sherd = [path for name, path in linked if name.startswith("libsherd")]
    runs = [last_json(run([tools / "load_library", *torch, *sherd])) for _ in range(10)]
    return min(sum(times[:-1]) for times in runs), min(times[-1] for times in runs)


def make_rows(times, peer, counts):
    rows = []
    for case, time in times.items():
        count = counts and counts[case]
        instructions = round(count["sherd"] - count["local"]) if count else None
        rows.append(make_row(case, (time["local_ns"], time["sherd_ns"]), peer[case], instructions))
    return rows


def print_table(rows):
    head = f"{'case':<12}{'local':>10}{'sherd':>10}{'extra':>10}{'python':>12}{'its extra':>12}{'ratio':>9}{'instructions':>14}"
    print(head + "\n" + "-" * len(head))
    for row in rows:
        instructions = "-" if row["extra_instructions"] is None else f"{row['extra_instructions']:+,}"
        print(
            f"{row['case']:<12}{row['local_ns']:>10,.0f}{row['sherd_ns']:>10,.0f}"
            f"{row['sherd_ns'] - row['local_ns']:>10,.0f}{row['python_ns']:>12,.0f}"
            f"{row['python_ns'] - row['python_local_ns']:>12,.0f}{row['extra_ratio']:>9.4f}{instructions:>14}"
        )
    print("times in ns per call; instructions: what sherd adds to a call")


def limits(rows, misses, load_ms):
    """Every claim with what was measured: [(claim, measured, limit, unit)]."""
    worst = max(rows, key=lambda row: row["extra_ratio"])
    found = [(f"largest ratio to Python's extra ({worst['case']})", worst["extra_ratio"], LARGEST_RATIO, "")]
    for row in rows:
        if row["extra_instructions"] is None or row["case"] == "step":
            continue
        outputs = OUTPUTS.get(row["case"], 1)
        limit = OUTPUT_INSTRUCTIONS * outputs if outputs else IN_PLACE_INSTRUCTIONS
        found.append((f"instructions added to {row['case']}", row["extra_instructions"], limit, ""))
    step = next(row for row in rows if row["case"] == "step")
    found.append(("training step over the local one", round(step["sherd_ns"] / step["local_ns"], 3), LARGEST_STEP, ""))
    slowest = max(misses, key=lambda row: row["miss_ns"])
    found.append((f"cache miss ({slowest['case']})", round(slowest["miss_ns"] / 1000, 1), LARGEST_MISS_US, "us"))
    found.append(("loading sherd over torch", round(load_ms, 1), LARGEST_LOAD_MS, "ms"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20000)
    parser.add_argument("--count", type=int, default=1000, help="calls that callgrind counts, and then twice as many")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a limit is missed")
    options = parser.parse_args()

    folder = options.build / "bench"
    program = folder / "bench_dispatch"
    settings = ["--device", options.device, "--runs", options.runs, "--iterations", options.iterations]
    say("timing sherd")
    times = by_case(last_json(run([program, "times", *settings])))
    say("timing Python's DTensor")
    peer = by_case(last_json(run([sys.executable, HERE / "python_cases.py", "torch", *settings])))
    say("cache misses and loading")
    misses = last_json(run([program, "miss", "--device", options.device]))
    torch_ms, sherd_ms = load_times(folder / "tools", program)
    counts = None
    if options.device == "cpu":
        say("counting instructions")
        counts = count_instructions(program, options.count)

    rows = make_rows(times, peer, counts)
    print_table(rows)
    print(f"loading: torch {torch_ms:.0f} ms, sherd {sherd_ms:.1f} ms over it")
    claims = limits(rows, misses, sherd_ms)
    print(f"\n{'to reach':<48}{'measured':>12}{'limit':>12}")
    for claim, measured, limit, unit in claims:
        verdict = "" if measured <= limit else "   missed"
        print(f"{claim:<48}{measured:>12,}{limit:>12,} {unit}{verdict}")

    (folder / "dispatch.json").write_text(json.dumps(rows, indent=1) + "\n")
    keys = ("claim", "measured", "limit", "unit")
    (folder / "dispatch_limits.json").write_text(json.dumps([dict(zip(keys, claim)) for claim in claims], indent=1) + "\n")
    say(f"wrote {folder / 'dispatch.json'}")
    if options.check and any(measured > limit for _, measured, limit, _ in claims):
        sys.exit(1)


if __name__ == "__main__":
    main()
