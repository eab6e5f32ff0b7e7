"""`./dev bench transport`: what a collective costs between ranks of one host, beside Gloo of the same torch.

    run.py BUILD [--ranks 2,4] [--sizes 4096,67108864] [--runs 2] [--seconds 0.2] [--check]

sherd's ranks as processes (shm) and as threads, and torch.distributed over Gloo, in one run; the best of --runs. A size
is that of the whole tensor: what all_gather makes, what reduce_scatter and all_to_all take.

Prints a table and writes BUILD/bench/transport.json, a list of {"case", "sherd_s", "python_s", "ratio", "bytes_moved",
"bytes_needed", "peak_bytes", "copy_s", "threads_s", "sherd_cpu_s", "python_cpu_s", "copy_cpu_s"}. `ratio` is python_s / sherd_s: 10 means that sherd takes a tenth of
the time. `bytes_moved` is what a rank receives from others, as the recorder counts it, `bytes_needed` the least it could.
`peak_bytes` is the memory that a rank takes beside its tensors, as the kernel counts it: what the call takes at its highest,
and the rank's part of the memory that its group shares. All three are means over the ranks.
`copy_s` is the time of plain memory copies of all that the call must write on a rank,
its own block included, on all ranks at once. With "_cpu_s" in their names the same as time of rank 0 on a core: on a
machine that is busy with other things they say more.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import best, finish, options_of, run_sides, size_text, time_text  # noqa: E402  (stands beside the folders of the benchmarks)

SMALL = 32 * 1024  # of at most these bytes it is the meeting that takes time, and not the copies

# What is to be reached: the least ratio to Gloo, the most times that of plain copies, and how much slower than processes
# threads may seem on a busy machine.
LEAST = {("all_reduce", 4096): 10, ("all_gather", 64 << 20): 5, ("all_reduce", 64 << 20): 3, ("all_to_all", 64 << 20): 3}
MOST_COPIES = 2
MOST_THREADS = 1.25
KEY = ("collective", "bytes", "ranks")
TIMES = ("seconds", "copy_seconds", "cpu_seconds", "copy_cpu_seconds")


def main():
    options = options_of(__doc__, "4096,65536,1048576,16777216,67108864,268435456")
    sides = run_sides("transport", options, HERE / "python_ranks.py")
    shm, threads, peers = (best(tables, KEY, TIMES) for tables in sides)

    rows = []
    head = f"{'case':<34}{'sherd':>11}{'gloo':>12}{'ratio':>8}{'copies':>11}{'of them':>9}{'threads':>11}{'cpu':>11}{'gloo cpu':>12}{'copies cpu':>12}"
    print(head + "\n" + "-" * len(head))
    missed = []
    for (collective, size, ranks), mine in sorted(shm.items(), key=lambda item: (item[0][2], item[0][0], item[0][1])):
        sherd, python, copy = mine["seconds"], peers[collective, size, ranks]["seconds"], mine["copy_seconds"]
        case = f"{collective} {size_text(size)} {ranks} ranks"
        rows.append(
            {
                "case": case,
                "sherd_s": sherd,
                "python_s": python,
                "ratio": round(python / sherd, 2),
                "bytes_moved": mine["bytes_moved"],
                "bytes_needed": mine["bytes_needed"],
                "peak_bytes": mine["peak_bytes"],
                "copy_s": copy,
                "threads_s": threads[collective, size, ranks]["seconds"],
                "sherd_cpu_s": mine["cpu_seconds"],
                "python_cpu_s": peers[collective, size, ranks]["cpu_seconds"],
                "copy_cpu_s": mine["copy_cpu_seconds"],
            }
        )
        names = ("sherd_s", "python_s", "copy_s", "threads_s", "sherd_cpu_s", "python_cpu_s", "copy_cpu_s")
        times = [time_text(rows[-1][name]) for name in names]
        print(
            f"{case:<34}{times[0]:>11}{times[1]:>12}{python / sherd:>8.1f}{times[2]:>11}{sherd / copy:>9.2f}{times[3]:>11}"
            f"{times[4]:>11}{times[5]:>12}{times[6]:>12}"
        )
        if rows[-1]["threads_s"] > MOST_THREADS * sherd:
            missed.append(f"{case}: threads take {rows[-1]['threads_s'] / sherd:.2f} times as long, to reach 1")
        if python / sherd < LEAST.get((collective, size), 0):
            missed.append(f"{case}: {python / sherd:.1f} times Gloo, to reach {LEAST[collective, size]}")
        if (collective, size) in LEAST and size > SMALL and sherd > MOST_COPIES * copy:
            missed.append(f"{case}: {sherd / copy:.2f} times plain copies, to reach {MOST_COPIES}")
    print("times in us per call")
    finish("transport", options, rows, missed)


if __name__ == "__main__":
    main()
