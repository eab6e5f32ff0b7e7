"""Makes tests/golden/dcp_python/, a checkpoint written by torch 2.13 on two ranks, and dcp_python.txt, what is in it.

    python tests/python/make_golden_checkpoints.py tests/golden

Every line of the text is an entry: its name; for a tensor its dtype, its size and for each chunk its offsets, its sizes, the file
and the CRC-32 of its elements in row-major order; for an object repr() of it.
"""

import os
import pathlib
import pickle
import shutil
import sys
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
).split()
RANKS = 2


def patterned(dtype, shape=(3,)):
    """Bytes that say where they are, whatever the dtype makes of them."""
    size = torch.empty((), dtype=dtype).itemsize
    count = torch.Size(shape).numel() * size
    values = torch.arange(count, dtype=torch.int64) % (2 if dtype == torch.bool else 251)
    return values.to(torch.uint8).view(dtype).reshape(shape)


def state(mesh):
    """What is saved; without a mesh, the same with whole tensors."""

    def sharded(tensor, dim):
        return tensor if mesh is None else distribute_tensor(tensor, mesh, [Shard(dim)])

    return {
        "dtypes": {name: patterned(getattr(torch, name)) for name in DTYPES},
        "shapes": {
            "scalar": torch.tensor(1.5),
            "empty": torch.empty(0, 3),
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "five": torch.arange(24.0).reshape(1, 2, 3, 2, 2),
            "long": torch.arange(300, dtype=torch.int64).to(torch.uint8),
        },
        "sharded": {
            "rows": sharded(torch.arange(20).reshape(5, 4), 0),
            "columns": sharded(torch.arange(20).reshape(5, 4), 1),
            "one row": sharded(torch.arange(4).reshape(1, 4), 0),
        },
        "names": [{"größe.語": torch.tensor([1, 2])}, "text", 3],
        "objects": {"int": 17, "big": 2**70, "float": 2.5, "none": None, "tuple": (1, "x"), "list": [1, 2], "bytes": b"\x00\xff"},
    }


def save(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    dcp.save(state(mesh), checkpoint_id=folder)
    if rank == 0:
        describe(folder)
    dist.barrier()
    dist.destroy_process_group()


def flattened(value, path=()):
    if isinstance(value, dict):
        return {name: leaf for key, item in value.items() for name, leaf in flattened(item, (*path, key)).items()}
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return {name: leaf for key, item in enumerate(value) for name, leaf in flattened(item, (*path, key)).items()}
    return {".".join(map(str, path)): value}


def describe(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    whole = flattened(state(None))
    with open(folder.with_suffix(".txt"), "w") as out:
        for name, entry in sorted(metadata.state_dict_metadata.items()):
            if not isinstance(entry, TensorStorageMetadata):
                print(f"{name}: {whole[name]!r}", file=out)
                continue
            files = {index.offset: info.relative_path for index, info in metadata.storage_data.items() if index.fqn == name}
            print(f"{name}: {entry.properties.dtype} {list(entry.size)}", file=out)
            for chunk in sorted(entry.chunks, key=lambda chunk: chunk.offsets):
                part = whole[name]
                for dim, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes)):
                    part = part.narrow(dim, offset, size)
                crc = zlib.crc32(part.contiguous().clone().reshape(-1).view(torch.uint8).numpy().tobytes())
                print(f"  {list(chunk.offsets)} {list(chunk.sizes)} {files[chunk.offsets]} {crc:08x}", file=out)


def main(golden):
    folder = pathlib.Path(golden) / "dcp_python"
    shutil.rmtree(folder, ignore_errors=True)
    torch.multiprocessing.start_processes(save, (folder,), RANKS)


if __name__ == "__main__":
    main(*sys.argv[1:])
