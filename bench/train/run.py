"""`./dev bench train`: the GPT of examples/train_gpt, trained by sherd in C++ and by torch.distributed in Python, in one run.

    run.py BUILD [--runs 1] [--steps 50] [--large-steps N] [--only small|large] [--quick] [--check]

Prints a table and writes BUILD/bench/train.json, a list of {"case", "sherd", "python", "ratio", "unit"}. Three rows for each model and
mesh: tokens per second (`ratio` is sherd / python: 2 means that sherd trains twice as fast), KiB that a rank receives in a step and the
most memory that a rank had (`ratio` is sherd / python, too: below 1 is better). Both sides: four processes of one thread each, `steps`
steps after 10; C++ over shared memory, Python over Gloo; the same weights and batches, and the losses of the first step that is measured
are compared (later ones drift apart by rounding). The sides take turns, the best of the runs counts. Python's bytes are counted as sherd's are, by looking at each collective. --large-steps: another number of
steps for the large model, whose step takes seconds on few cores. --quick: few steps of the small model, to see that it works.
--device cuda: one rank, its time for a step, and beside both sides C++ without sherd; then both C++ sides with the step captured in a
CUDA graph, which plays the kernels without the host.
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import finish, rows_of, say  # noqa: E402  (stands beside the folders of the benchmarks)

MODELS = {
    "small": ["--layers", 4, "--width", 128, "--length", 64, "--batch", 8],
    "large": ["--layers", 4, "--width", 512, "--length", 256, "--batch", 8],
}
MESHES = {
    "tensor 2 x data 2": ["--dp", 2, "--tp", 2],
    "fully sharded 4": ["--dp", 4, "--fsdp"],
}
LEAST_SPEED = {"small": 1.5, "large": 1.05}
MOST_STEP_TIME = 1.03  # on one GPU, of C++ without sherd
MOST_LOSS_DIFFERENCE = 1e-3
# The key of a row, its unit and how much of it that is, whether more is better.
QUANTITIES = (("tokens_per_second", "tokens/s", 1, True), ("bytes", "KiB/step", 1024, False), ("peak_mib", "MiB", 1, False))


def best_of(rows):
    best = dict(rows[0])
    for key, _, _, more in QUANTITIES:
        best[key] = (max if more else min)(row[key] for row in rows)
    return best


def measured(options, name, ranks, sides, settings):
    """The best row of each side."""
    launch = [options.build / "bin" / "sherd", "run", "--no-prefix", "-n", ranks, "--"]
    tables = {side: [] for side in sides}
    for run in range(options.runs):
        say("train", f"{name}, run {run + 1} of {options.runs}: {', '.join(sides)}")
        for side, program in sides.items():
            tables[side] += rows_of([*launch, *program, *settings])
    best = {side: best_of(rows) for side, rows in tables.items()}
    losses = {side: row["loss"] for side, row in best.items()}
    if max(losses.values()) - min(losses.values()) > MOST_LOSS_DIFFERENCE * min(losses.values()):
        sys.exit(f"{name}: the sides do not train the same: losses {losses}")
    return best


def rows_for(name, ours, theirs):
    for key, unit, size, _ in QUANTITIES:
        sherd, python = round(ours[key] / size, 1), round(theirs[key] / size, 1)
        yield {"case": name, "sherd": sherd, "python": python, "ratio": round(sherd / python, 3) if python else None, "unit": unit}


def print_rows(rows):
    for row in rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        plain = f", C++ alone {row['plain']}: {row['of_plain']} of it" if "plain" in row else ""
        python = "-" if row["python"] is None else f"{row['python']:,.1f}"
        print(f"{row['case']:<40}{row['sherd']:>14,.1f}{python:>14}{ratio:>9}  {row['unit']}{plain}", flush=True)


def misses(rows):
    for row in rows:
        model = row["case"].split(",")[0]
        if row["unit"] == "tokens/s" and row["ratio"] < LEAST_SPEED.get(model, 0):
            yield f"{row['case']}: {row['ratio']} times Python's tokens per second, to reach {LEAST_SPEED[model]}"
        if row["unit"] in ("KiB/step", "MiB") and (row["ratio"] or 0) > 1:
            yield f"{row['case']}: {row['ratio']} times Python's {row['unit']}, to stay within 1"
        if row["unit"] == "ms/step" and row["of_plain"] > MOST_STEP_TIME:
            yield f"{row['case']}: {row['of_plain']} times a step without sherd, to stay within {MOST_STEP_TIME}"


def on_four_ranks(options, sides):
    for model, size in MODELS.items():
        if options.only not in (None, model):
            continue
        steps = options.large_steps if model == "large" and options.large_steps else options.steps
        for mesh, flags in MESHES.items():
            name = f"{model}, {mesh}"
            best = measured(options, name, 4, sides, [*size, *flags, "--steps", steps, "--warmup", min(options.warmup, steps)])
            yield from rows_for(name, best["sherd"], best["Python"])


def step_times(size, rows):
    """Milliseconds for a step of each side."""
    length, batch = size[size.index("--length") + 1], size[size.index("--batch") + 1]
    return {side: 1e3 * length * batch / row["tokens_per_second"] for side, row in rows.items()}


def on_one_gpu(options, sides):
    """One rank: what sherd adds to a step."""
    plain = {"C++ alone": [*sides["sherd"], "--plain"], "Python alone": [*sides["Python"], "--plain"]}
    for model, size in MODELS.items():
        if options.only not in (None, model):
            continue
        settings = [*size, "--device", "cuda", "--steps", options.steps, "--warmup", options.warmup]
        best = measured(options, f"{model}, one GPU", 1, {"sherd": sides["sherd"], **plain}, settings)
        times = step_times(size, best)
        sherd, python = round(times["sherd"], 3), round(times["Python alone"], 3)
        yield {
            "case": f"{model}, one GPU",
            "sherd": sherd,
            "python": python,
            "ratio": round(sherd / python, 3),
            "unit": "ms/step",
            "plain": round(times["C++ alone"], 3),
            "of_plain": round(times["sherd"] / times["C++ alone"], 3),
        }
        captured = {"sherd": [*sides["sherd"], "--graph"], "C++ alone": [*plain["C++ alone"], "--graph"]}
        times = step_times(size, measured(options, f"{model}, one GPU, captured", 1, captured, settings))
        yield {
            "case": f"{model}, one GPU, captured",
            "sherd": round(times["sherd"], 3),
            "python": None,
            "ratio": None,
            "unit": "ms/step",
            "plain": round(times["C++ alone"], 3),
            "of_plain": round(times["sherd"] / times["C++ alone"], 3),
        }


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--large-steps", type=int, help="steps of the large model, where not --steps")
    parser.add_argument("--only", choices=list(MODELS), help="one of the models")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="few steps of the small model: to see that it works")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()
    if options.quick:
        options.only, options.steps, options.warmup = "small", 5, 2
    return options


def main():
    options = options_of()
    sides = {"sherd": [options.build / "bench" / "bench_train"], "Python": [sys.executable, HERE / "python_ranks.py"]}
    print(f"{'case':<40}{'sherd':>14}{'Python':>14}{'ratio':>9}  unit")
    rows = []
    for row in on_one_gpu(options, sides) if options.device == "cuda" else on_four_ranks(options, sides):
        print_rows([row])
        rows.append(row)
    finish("train", options, rows, [] if options.quick else list(misses(rows)))


if __name__ == "__main__":
    main()
