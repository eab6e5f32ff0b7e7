"""`./dev bench tools`: verbs of the command beside the shortest Python that does the same, with the same wheel, in one run.

    run.py BUILD [--runs 3] [--folder /dev/shm] [--checkpoints FOLDER] [--cases PATTERN] [--quick] [--check]

Prints a table and writes BUILD/bench/tools.json, a list of {"case", "sherd_s", "python_s", "ratio", "peak_bytes"}: seconds from the
start of the process to its end, python_s / sherd_s, and the most memory that the command held. Beside them "limit_s", what reading
or copying the same bytes takes by as many threads as there are cores; "python_work_s", what Python's side takes without its start
and imports; and the processors' time of each, "sherd_cpu_s", "python_cpu_s" and "limit_cpu_s", which others on the machine hardly change. Each is
the best of the runs, in which the sides take turns; a command that only reads and takes less than 0.2 s is run three times in its turn.
The checkpoints are those of four ranks of torch.distributed.checkpoint: 2 GiB in 256 tensors, and 5,000 small tensors. --cases measures the rows whose names match and leaves the others in the file; with
--checkpoints, which makes the checkpoints once and keeps them for the next call, a run can be done piece by piece.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from ranks import finish, is_wanted, say  # noqa: E402  (stands beside the folders of the benchmarks)

PIECE = 1 << 20

# Python's side. `path` is the checkpoint, `target` what is to be written; what stands before "# work" is not part of python_work_s.
INSPECT = """
from torch.distributed.checkpoint import FileSystemReader
# work
for name, entry in FileSystemReader(path).read_metadata().state_dict_metadata.items():
    print(name, getattr(entry, "size", ""), len(getattr(entry, "chunks", [])))
"""
VERIFY = """
import io, zipfile
from torch.distributed.checkpoint import FileSystemReader
# work
for info in FileSystemReader(path).read_metadata().storage_data.values():
    with open(f"{path}/{info.relative_path}", "rb") as file:
        file.seek(info.offset)
        assert zipfile.ZipFile(io.BytesIO(file.read(info.length))).testzip() is None
"""
# What others would write: torch's own converter; torch.load and the safetensors library; a load of the whole and a save by
# as many ranks, one after the other, which is all the parallelism that a script has.
TO_TORCH_SAVE = """
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
# work
dcp_to_torch_save(path, target)
"""
TO_SAFETENSORS = """
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
# work
def flat(state, prefix=""):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
save_file({name: value for name, value in flat(_load_state_dict_from_keys(checkpoint_id=path)) if isinstance(value, torch.Tensor)}, target)
"""
RESHARD = """
import torch, torch.distributed.checkpoint as dcp, torch.multiprocessing as mp
# work
def rank(rank, path, target):
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor, zeros
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{target}.meet", rank=rank, world_size=3)
    mesh = init_device_mesh("cpu", (3,))
    metadata = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    state = {name: zeros(entry.size, device_mesh=mesh, placements=[Shard(0)], dtype=entry.properties.dtype) for name, entry in metadata.items() if hasattr(entry, "size")}
    dcp.load(state, checkpoint_id=path)
    dcp.save(state, checkpoint_id=target)
    dist.destroy_process_group()
import os, threading
pids = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        rank(number, path, target)
        os._exit(0)
    pids.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
os.remove(f"{target}.meet") if os.path.exists(f"{target}.meet") else None
"""
MEMORY = 256 << 20
SHORT = 0.2


@dataclass
class Case:
    """One row. Words and programs may name {large}, {small} (checkpoints) and {target}, which is removed before each run."""

    name: str
    words: list[str]  # of the command
    python: str
    path: str  # the checkpoint that Python's side takes: "large" or "small"
    limit: str | None = None  # "read" or "copy" of the bytes of the checkpoint that the command takes
    least_ratio: float | None = None  # of Python's time to ours
    most_of_limit: float | None = None  # times the limit
    most_bytes: int | None = None  # of memory
    environment: dict[str, str] = field(default_factory=dict)

    def writes(self) -> bool:
        return any("{target}" in word for word in self.words)


CASES = [
    Case("inspect 5,000 tensors", ["inspect", "{small}"], INSPECT, "small", least_ratio=50),
    Case("inspect 2 GiB", ["inspect", "{large}"], INSPECT, "large"),
    Case("verify 5,000 tensors", ["verify", "{small}"], VERIFY, "small", limit="read"),
    Case("verify 2 GiB", ["verify", "{large}"], VERIFY, "large", limit="read", most_of_limit=1 / 0.8),
    Case("verify 2 GiB with digests", ["verify", "{digests}"], VERIFY, "large", limit="read", most_of_limit=1 / 0.8),
    Case("convert 2 GiB to .pt", ["convert", "{large}", "{target}.pt"], TO_TORCH_SAVE, "large", "copy", 3, 1.5, MEMORY),
    Case("convert 2 GiB to .safetensors", ["convert", "{large}", "{target}.safetensors"], TO_SAFETENSORS, "large", "copy", 3, 1.5, MEMORY),
    Case("convert 5,000 tensors to .pt", ["convert", "{small}", "{target}.pt"], TO_TORCH_SAVE, "small", None, 3, None, MEMORY),
    Case("reshard 2 GiB to 3 ranks", ["reshard", "{large}", "{target}", "--ranks", "3"], RESHARD, "large", "copy", 3, None, MEMORY),
]


def timed(words: list[str], **variables: str) -> dict[str, float]:
    """Seconds of the clock and of the processors, and the most memory, of a process."""
    begin = time.monotonic()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **variables})
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed with {process.returncode}: {' '.join(words)}\n{process.stderr.read().decode()}")
    process.stderr.close()
    return {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * 1024}


def timed_python(program: str, folder: pathlib.Path, **names: str) -> dict[str, float]:
    report = folder / "work_seconds"
    before, work = program.split("# work\n")
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    text += f"import time\n{before}\nbegin = time.monotonic()\n{work}\nopen({str(report)!r}, 'w').write(str(time.monotonic() - begin))\n"
    return {**timed([sys.executable, "-c", text]), "work": float(report.read_text())}


def files_of(path: pathlib.Path) -> list[tuple[pathlib.Path, int]]:
    return [(file, file.stat().st_size) for file in sorted(path.iterdir())]


def read_all(path: pathlib.Path, target: pathlib.Path | None = None) -> tuple[float, float]:
    """A plain read, or copy, of all bytes in pieces, by threads: seconds, and those of the processors."""
    parts = []
    for file, size in files_of(path):
        step = max(PIECE, size // (4 * (os.cpu_count() or 1)) // PIECE * PIECE)
        parts += [(file, begin, min(begin + step, size)) for begin in range(0, size, step)]
    if target is not None:
        target.mkdir()

    def work(part: tuple[pathlib.Path, int, int]) -> None:
        file, begin, end = part
        buffer = bytearray(PIECE)
        source = os.open(file, os.O_RDONLY)
        out = os.open(target / file.name, os.O_WRONLY | os.O_CREAT, 0o600) if target is not None else -1
        while begin < end:
            count = os.preadv(source, [memoryview(buffer)[: min(PIECE, end - begin)]], begin)
            if out >= 0:
                os.pwritev(out, [memoryview(buffer)[:count]], begin)
            begin += count
        os.close(source)
        if out >= 0:
            os.close(out)

    begin, worked = time.monotonic(), time.process_time()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, parts))
    return time.monotonic() - begin, time.process_time() - worked


def remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def measured(options: argparse.Namespace, case: Case, folder: pathlib.Path, checkpoints: pathlib.Path) -> dict[str, object]:
    names = {name: str(checkpoints / name) for name in ("large", "small", "digests")}
    target = folder / f"target-{case.name.replace(' ', '-')}"
    for word in case.words:
        if word.startswith("{target}"):  # its ending may choose a format
            target = pathlib.Path(word.format(target=target))
    words = [str(options.build / "bin" / "sherd"), *(word.format(**names, target=target.with_suffix("") if "{target}." in word else target) for word in case.words)]
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    limits: list[tuple[float, float]] = []
    for _ in range(options.runs):
        remove(target)
        ours.append(timed(words, **case.environment))
        if ours[-1]["seconds"] < SHORT and not case.writes():
            # The first finds the caches full of what Python left there, which is as long as the work itself.
            ours += [timed(words, **case.environment) for _ in range(2)]
        remove(target)
        theirs.append(timed_python(case.python, folder, path=names[case.path], target=str(target)))
        remove(target)
        if case.limit:
            copy = folder / "limit"
            limits.append(read_all(pathlib.Path(words[2]), copy if case.limit == "copy" else None))
            remove(copy)
    best = {key: min(run[key] for run in ours) for key in ("seconds", "cpu")}
    peer = {key: min(run[key] for run in theirs) for key in ("seconds", "cpu", "work")}
    return {
        "case": case.name,
        "sherd_s": round(best["seconds"], 4),
        "python_s": round(peer["seconds"], 4),
        "ratio": round(peer["seconds"] / best["seconds"], 2),
        "peak_bytes": int(max(run["bytes"] for run in ours)),
        "limit_s": round(min(seconds for seconds, _ in limits), 4) if limits else None,
        "python_work_s": round(peer["work"], 4),
        "sherd_cpu_s": round(best["cpu"], 4),
        "python_cpu_s": round(peer["cpu"], 4),
        "limit_cpu_s": round(min(worked for _, worked in limits), 4) if limits else None,
    }


def misses(case: Case, row: dict[str, object]) -> list[str]:
    missed = []
    if case.least_ratio and row["ratio"] < case.least_ratio:
        missed.append(f"{case.name}: {row['ratio']} times Python's speed, to reach {case.least_ratio}")
    if case.most_of_limit and row["sherd_s"] > case.most_of_limit * row["limit_s"]:
        missed.append(f"{case.name}: {row['sherd_s'] / row['limit_s']:.2f} times the limit, to reach {case.most_of_limit:.2f}")
    if case.most_bytes and row["peak_bytes"] > case.most_bytes:
        missed.append(f"{case.name}: {row['peak_bytes']} bytes of memory, to stay under {case.most_bytes}")
    return missed


COLUMNS = ("sherd_s", "python_s", "ratio", "limit_s", "python_work_s", "sherd_cpu_s", "python_cpu_s", "limit_cpu_s")


def text_of(row: dict[str, object]) -> str:
    words = [row[name] if name == "ratio" else "-" if row[name] is None else f"{row[name] * 1e3:,.1f}" for name in COLUMNS]
    return f"{row['case']:<36}" + "".join(f"{word:>14}" for word in words) + f"{row['peak_bytes'] / 2**20:>12,.1f} MiB"


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", default="/dev/shm", help="where the checkpoints lie")
    parser.add_argument("--checkpoints", type=pathlib.Path, help="where the checkpoints are kept for the next call; as a rule they are removed")
    parser.add_argument("--cases", metavar="PATTERN", help="only cases whose names match; the others' rows stay in the file")
    parser.add_argument("--quick", action="store_true", help="small tensors and one run: to see that it works")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()
    options.large, options.rows, options.small = 256, 4096, 5000
    if options.quick:
        options.runs, options.large, options.small = 1, 4, 50
    return options


def make_checkpoints(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """`large`, `small` and `digests` in the folder. What is there is complete: the last one is put in place in one step."""
    if (folder / "digests").exists():
        return
    say("tools", "making the checkpoints")
    subprocess.run([sys.executable, HERE / "make_checkpoints.py", folder, str(options.large), str(options.rows), str(options.small)], check=True)
    subprocess.run([options.build / "bin" / "sherd", "convert", folder / "large", folder / "digests"], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    options = options_of()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rows, missed = [], []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="sherd-bench-") as name:
        folder = pathlib.Path(name)
        checkpoints = options.checkpoints or folder
        checkpoints.mkdir(exist_ok=True)
        make_checkpoints(options, checkpoints)
        print(f"{'milliseconds':<36}" + "".join(f"{column.removesuffix('_s'):>14}" for column in COLUMNS) + f"{'peak':>12}")
        for case in CASES:
            if not is_wanted(options, case.name):
                continue
            row = measured(options, case, folder, checkpoints)
            print(text_of(row), flush=True)
            rows.append(row)
            missed += [] if options.quick else misses(case, row)
    finish("tools", options, rows, missed, [case.name for case in CASES])


if __name__ == "__main__":
    main()
