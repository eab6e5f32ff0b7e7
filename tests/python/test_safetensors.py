"""safetensors: sherd writes the library's bytes, and each reads the other's; PyTorch's sharded folders, too.

usage: test_safetensors.py PROBE    (build/tests/format_probe)
"""

import json
import pathlib
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from probe import Probe

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
).split()


def patterned(dtype, shape):
    size = torch.empty((), dtype=dtype).itemsize
    count = torch.Size(shape).numel() * size
    values = torch.arange(count, dtype=torch.int64) % (2 if dtype == torch.bool else 251)
    return values.to(torch.uint8).view(dtype).reshape(shape)


def check_bytes(probe, folder):
    there, back = folder / "there.safetensors", folder / "back.safetensors"
    tensors = {f"{name}.{i}": patterned(getattr(torch, name), shape) for name in DTYPES for i, shape in enumerate([(4,), (2, 6), (3, 0, 2)])}
    tensors["scalar"] = torch.tensor(2.5)
    tensors['größe "語"\n'] = torch.ones(3)
    for metadata in [None, {"format": "pt"}, {"quoted": 'a "b"\\ \n ü'}]:
        save_file(tensors, there, metadata=metadata)
        probe("safetensors", there, back)
        assert back.read_bytes() == there.read_bytes(), metadata


def check_sharded(probe, folder):
    """Parts as PyTorch writes them, read as chunks; rewritten by sherd and read by PyTorch."""
    path = folder / "hf"
    path.mkdir()
    whole = torch.arange(20.0).reshape(5, 4)
    for rank, (begin, end) in enumerate([(0, 3), (3, 5)]):
        info = {"w": {"saved_offsets": [begin, 0]}, f"own{rank}": {"saved_offsets": [0]}}
        tensors = {"w": whole[begin:end].contiguous(), f"own{rank}": torch.full((2,), float(rank))}
        name = path / f"shard-0000{rank + 1}-model-00001-of-00001.safetensors"
        save_file(tensors, name, metadata={"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"})
    assert probe("folder", path) == "own0 [2] 1; own1 [2] 1; w [5, 4] 2"
    for name in sorted(path.iterdir()):
        probe("safetensors", name, name)
    blank = {"w": torch.zeros(5, 4), "own0": torch.zeros(2), "own1": torch.zeros(2)}
    dcp.load(blank, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True)
    assert torch.equal(blank["w"], whole) and torch.equal(blank["own1"], torch.ones(2))


def check_index(probe, folder):
    path = folder / "indexed"
    state = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(str(path), fqn_to_index_mapping={"a": 1, "b": 2}), no_dist=True)
    index = path / "model.safetensors.index.json"
    written = json.loads(index.read_text())
    probe("index", index, index)
    again = json.loads(index.read_text())
    assert len(again["metadata"].pop("sherd.digest")) == 32
    assert again == written
    assert load_file(path / written["weight_map"]["b"])["b"].shape == (2, 2)


def main(program):
    probe = Probe(program)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_bytes(probe, folder)
        check_sharded(probe, folder)
        check_index(probe, folder)
    print("safetensors are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
