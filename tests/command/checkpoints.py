"""Checkpoints for the tests of the command, and running it."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

SHERD = ""
FOLDER = pathlib.Path()

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex32 complex64 "
    "complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()


def numbers(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> torch.Tensor:
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return (torch.arange(count) % 3 == salt % 3).view(shape)
    if dtype.is_complex:
        real = ((torch.arange(2 * count) * 7 + salt) % 97).double() / 8
        return torch.view_as_complex(real.view(count, 2)).to(dtype).view(shape)
    if dtype.itemsize == 1:
        return ((torch.arange(count) * 5 + salt) % 251).to(torch.uint8).view(dtype).view(shape)
    values = (torch.arange(count) * 7 + salt) % 113
    return (values / 8 if dtype.is_floating_point else values).to(dtype).view(shape)


def full_state() -> dict[str, Any]:
    """What every checkpoint holds, whole."""
    return {
        "model": {
            "rows": numbers((7, 6)),
            "columns": numbers((4, 9), torch.float64, 1),
            "grid": numbers((6, 4, 5), torch.bfloat16, 2),
            "whole": numbers((5,), salt=3),
            "table": numbers((8, 4), salt=4),
            "scalar": torch.tensor(2.5),
            "empty": torch.zeros(0, 3),
            "turned": numbers((3, 4), salt=5).t(),
        },
        "dtypes": {name: numbers((3, 5), getattr(torch, name), i) for i, name in enumerate(DTYPES)},
        "optimizer": {"lr": 0.1, "betas": (0.9, 0.95), "names": ["a", {"b": None}], "on": True},
        "step": 100,
    }


def flat(state: Any, prefix: str = "") -> dict[str, Any]:
    """As DCP flattens: lists without tensors and dicts are values, everything else goes by dots."""
    out: dict[str, Any] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            out.update(flat(value, name + "."))
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            for i, one in enumerate(value):
                out.update(flat({str(i): one}, name + "."))
        else:
            out[name] = value
    return out


def _rank(rank: int, folder: str) -> None:
    """Worlds of 1 to 4 ranks, one after the other, as parts of the same four processes."""
    from torch.distributed._shard.sharded_tensor import Shard as LocalShard
    from torch.distributed._shard.sharded_tensor import init_from_local_shards
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=4)
    for ranks in (1, 2, 3, 4):
        group = dist.new_group(list(range(ranks)))
        if rank < ranks:
            mesh = DeviceMesh.from_group(group, "cpu")
            state = copy.deepcopy(full_state())
            model = state["model"]
            model["rows"] = distribute_tensor(model["rows"], mesh, [Shard(0)])
            model["columns"] = distribute_tensor(model["columns"], mesh, [Shard(1)])
            model["grid"] = distribute_tensor(model["grid"], mesh, [Shard(2)])
            model["whole"] = distribute_tensor(model["whole"], mesh, [Replicate()])
            begin, end = 8 * rank // ranks, 8 * (rank + 1) // ranks
            part = model["table"][begin:end].clone()
            shard = LocalShard.from_tensor_and_offsets(part, [begin, 0], rank)
            model["table"] = init_from_local_shards([shard], 8, 4, process_group=group)
            dcp.save(state, checkpoint_id=f"{folder}/torch-{ranks}", process_group=group)
        dist.barrier()
    dist.destroy_process_group()


def make_all() -> None:
    mp.spawn(_rank, (str(FOLDER),), 4)
    torch.save(full_state(), FOLDER / "state.pt")
    for ranks in (1, 2, 3, 4):
        run("reshard", FOLDER / "torch-1", FOLDER / f"sherd-{ranks}", "--ranks", ranks, code=0)
    if has_package():
        import sherd

        # 3 MiB, of which one is another one later.
        state = {"big": torch.arange(3 * 2**18, dtype=torch.int32), "step": 1}
        sherd.save(state, FOLDER / "run/step-1")
        state["big"][2**18 + 5] = -1
        state["step"] = 2
        sherd.save(state, FOLDER / "run/step-2", base=FOLDER / "run/step-1")


def has_package() -> bool:
    try:
        import sherd  # noqa: F401
    except ImportError:
        return False
    return True


def run(*words: Any, code: int | None = None, folder: pathlib.Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command with these words; where `code` is given, it must exit with it."""
    result = subprocess.run(
        [SHERD, *map(str, words)], capture_output=True, text=True, timeout=120, check=False, cwd=folder or FOLDER, env={**os.environ, **variables}
    )
    if code is not None and result.returncode != code:
        raise AssertionError(f"sherd {' '.join(map(str, words))}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def json_of(*words: Any, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


def copied(name: str, to: str) -> pathlib.Path:
    """A copy that a test may damage."""
    target = FOLDER / to
    if target.is_dir():
        shutil.rmtree(target)
    source = FOLDER / name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


if __name__ == "__main__":
    sys.exit("run main.py")
