"""Makes tests/golden/dcp_python/, a checkpoint written by torch 2.13 on two ranks, and dcp_python.txt, what is in it;
tests/golden/torch_save/python_state.pt, a state dict with a view; and tests/golden/formats/, one state in every format, by the
libraries that the formats come from and by sherd. A release stays readable: of these only what is not there yet is made.

    PYTHONPATH=build/python python tests/python/make_golden_checkpoints.py tests/golden [dcp_python|torch_save|formats]...

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
from torch.distributed.checkpoint import _version
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


def save_state(path):
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.arange(6.0).reshape(2, 3))
        model.bias.zero_()
    moments = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2, 3)}
    group = {"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}
    path.parent.mkdir(exist_ok=True)
    state = model.state_dict()
    optimizer = {"state": {0: moments}, "param_groups": [group]}
    torch.save({"model": state, "optimizer": optimizer, "view": state["weight"][1], "epoch": 3}, path)


def small_state(sharded=lambda tensor, dim: tensor, step=1000):
    """In every format the same; tests/unit/checkpoint/golden_formats_test.cpp has the formulas, too."""
    return {
        "model": {
            "weight": sharded(torch.arange(24.0).reshape(4, 6) / 2, 0),
            "bias": sharded(torch.arange(5).to(torch.bfloat16), 0),
            "count": torch.tensor(7),
            "mask": torch.arange(6).reshape(2, 3) % 2 == 0,
        },
        "step": step,
        "lr": 0.25,
        "names": ["a", "b"],
    }


def flat_tensors():
    return {f"model.{name}": tensor for name, tensor in small_state()["model"].items()}


def save_small(rank, folder, how):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    state = small_state(lambda tensor, dim: distribute_tensor(tensor, mesh, [Shard(dim)]))
    if how == "safetensors":
        writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
        dcp.save({f"model.{name}": tensor for name, tensor in state["model"].items()}, storage_writer=writer)
    elif how == "rank metadata":  # each rank has values of its own
        state |= {"own": {"seed": 10 + rank, "state": torch.full((3,), float(rank))}}
        dcp.save(state, checkpoint_id=folder, use_collectives=False)
    elif how == "2.3":
        save_as_2_3(rank, state | {"schedule": {"warmup": 10, "name": "cosine"}}, folder)
    else:
        dcp.save(state, checkpoint_id=folder)
    dist.barrier()
    dist.destroy_process_group()


def save_as_2_3(rank, state, folder):
    """As torch 2.3 did: a dict without tensors is one object, and the metadata have the fields of that time."""
    _version._derived_version = "2_3"
    dcp.save(state, checkpoint_id=folder)
    dist.barrier()
    if rank != 0:
        return
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for name in ("storage_meta", "version"):
        metadata.__dict__.pop(name, None)
    for info in metadata.storage_data.values():
        info.__dict__.pop("transform_descriptors", None)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def save_by_sherd(golden):
    import sherd

    def save_all(rank):
        mesh = sherd.init_device_mesh("cpu", (RANKS,))

        def state(step=1000):
            return small_state(lambda tensor, dim: sherd.distribute_tensor(tensor, mesh, [sherd.Shard(dim)]), step)

        def save(name, step=1000, **options):
            if name in missing:
                sherd.save(state(step), golden / name, **options)

        save("sherd_dcp")
        save("sherd_dcp_compressed", compress=True)
        save("sherd_base", step=999)
        save("sherd_incremental", base=golden / "sherd_base")
        save("sherd_ranks", format="safetensors")
        save("sherd.safetensors")
        save("sherd.pt")

    names = "sherd_dcp sherd_dcp_compressed sherd_base sherd_incremental sherd_ranks sherd.safetensors sherd.pt".split()
    missing = {name for name in names if not (golden / name).exists()}
    if missing:
        sherd.spawn(RANKS, save_all)
    if not (golden / "sherd_indexed").exists():  # files of some tensors each, and an index
        sherd.rewrite_checkpoint(golden / "sherd_dcp", golden / "sherd_indexed", format="safetensors", file_bytes=100)


def save_formats(golden):
    import safetensors.torch

    def is_missing(name):
        return not (golden / name).exists()

    golden.mkdir(exist_ok=True)
    ways = {"torch_dcp": "dcp", "torch_ranks": "safetensors", "torch_rank_metadata": "rank metadata", "torch_2_3": "2.3"}
    for name, how in ways.items():
        if is_missing(name):
            torch.multiprocessing.start_processes(save_small, (golden / name, how), RANKS)
    if is_missing("torch_indexed"):
        files = {name: i % 2 + 1 for i, name in enumerate(flat_tensors())}
        writer = dcp.HuggingFaceStorageWriter(str(golden / "torch_indexed"), files)
        dcp.save(flat_tensors(), storage_writer=writer, no_dist=True)
    if is_missing("library.safetensors"):
        safetensors.torch.save_file(flat_tensors(), golden / "library.safetensors", metadata={"author": "golden"})
    if is_missing("torch.pt"):
        torch.save(small_state(), golden / "torch.pt")
    save_by_sherd(golden)


def main(golden, *wanted):
    golden = pathlib.Path(golden)
    if not wanted or "torch_save" in wanted:
        save_state(golden / "torch_save" / "python_state.pt")
    if not wanted or "dcp_python" in wanted:
        folder = golden / "dcp_python"
        shutil.rmtree(folder, ignore_errors=True)
        torch.multiprocessing.start_processes(save, (folder,), RANKS)
    if not wanted or "formats" in wanted:
        save_formats(golden / "formats")


if __name__ == "__main__":
    main(*sys.argv[1:])
