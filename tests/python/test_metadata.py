"""`.metadata` of torch.distributed.checkpoint: what sherd reads and writes again, PyTorch reads as the same.

usage: test_metadata.py PROBE    (build/tests/format_probe)
"""

import os
import pathlib
import pickle
import random
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

from probe import Probe, Refused

CASES = 60


def grid(size, cuts):
    """The chunks of a tensor that is cut evenly along its dims."""
    boxes = [((), ())]
    for length, parts in zip(size, cuts):
        step = -(-length // parts)
        ends = [min(i * step, length) for i in range(parts + 1)]
        boxes = [(o + (a,), s + (b - a,)) for o, s in boxes for a, b in zip(ends, ends[1:])]
    return [ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in boxes]


def random_metadata(rng, count):
    entries, paths, storage = {}, {}, {}
    for i in range(count):
        name = rng.choice(["layer.", "größe.", "x" * 300 + ".", "model.blocks.0."]) + str(i)
        paths[name] = rng.choice([(name,), ("a", i, "b"), (), ("a", 1, "b", -2, "c")])
        file = f"__{rng.randrange(4)}_0.distcp"
        descriptors = rng.choice([None, None, ["stream.zstd/1"]])
        place = lambda: _StorageInfo(file, rng.choice([0, 300, 70000, 2**31, 2**33, 2**50]), rng.randrange(1, 10**6), descriptors)
        if rng.random() < 0.2:
            entries[name] = BytesStorageMetadata()
            storage[MetadataIndex(name)] = place()
            continue
        size = torch.Size(rng.choice([0, 1, 7, 64, 300, 700]) for _ in range(rng.randrange(6)))
        chunks = grid(size, [rng.choice([1, 1, 2, 3]) for _ in size])
        chunks = list({chunk.offsets: chunk for chunk in chunks}.values())
        properties = TensorProperties(
            dtype=rng.choice([torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint64]),
            requires_grad=rng.random() < 0.5,
            memory_format=rng.choice([torch.contiguous_format, torch.channels_last, torch.preserve_format]),
        )
        entries[name] = TensorStorageMetadata(properties, size, chunks)
        hints = rng.choice([lambda i: i, lambda i: None, lambda i: 0])
        for i, chunk in enumerate(chunks):
            storage[MetadataIndex(name, chunk.offsets, hints(i))] = place()
    rng.shuffle(items := list(storage.items()))
    return Metadata(
        entries,
        rng.choice([paths, None, {"a planner's own": [1, (2.5, "x"), {"y": {3}}]}]),
        dict(items),
        StorageMeta(rng.choice(["there", pathlib.Path("/a/b"), pathlib.Path("c")]), "id"),
        "1.0.0",
    )


def normal(metadata):
    """Paths come back as texts, for what reads them prints them."""
    if metadata.storage_meta is not None and metadata.storage_meta.checkpoint_id is not None:
        metadata.storage_meta.checkpoint_id = str(metadata.storage_meta.checkpoint_id)
    return metadata


def check_random(probe, folder):
    rng = random.Random(2)
    there, back = folder / "there", folder / "back"
    for case in range(CASES):
        metadata = random_metadata(rng, rng.choice([0, 1, 5, 40, 40, 1200]))
        there.write_bytes(pickle.dumps(metadata, rng.choice([2, 3, 4, 5])))
        probe("metadata", there, back)
        read = pickle.loads(back.read_bytes())
        assert normal(read) == normal(metadata), case
        assert list(read.state_dict_metadata) == list(metadata.state_dict_metadata), case


def check_older(probe, folder):
    """Fields that are missing have their defaults; attributes that are not known are passed over."""
    there, back = folder / "there", folder / "back"
    metadata = random_metadata(random.Random(3), 5)
    for field in ["storage_meta", "version", "planner_data"]:
        del metadata.__dict__[field]
    metadata.something_new = 3
    for entry in metadata.state_dict_metadata.values():
        entry.another = [4]
    there.write_bytes(pickle.dumps(metadata))
    probe("metadata", there, back)
    read = pickle.loads(back.read_bytes())
    del metadata.__dict__["something_new"]
    for entry in metadata.state_dict_metadata.values():
        del entry.__dict__["another"]
    assert read.state_dict_metadata == metadata.state_dict_metadata
    assert read.storage_data == metadata.storage_data
    assert read.planner_data is None and read.version is None


def check_hostile(probe, folder):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch " + str(folder / "ran"),)

    metadata = random_metadata(random.Random(4), 5)
    metadata.planner_data = Evil()
    (folder / "there").write_bytes(pickle.dumps(metadata))
    try:
        probe("metadata", folder / "there", folder / "back")
    except Refused as refusal:
        assert "posix.system may not stand here" in str(refusal), refusal
    else:
        raise AssertionError("a class to execute was read")
    assert not (folder / "ran").exists()


def check_load(probe, folder):
    """A checkpoint whose .metadata sherd wrote again loads in every way that PyTorch has."""
    state = {
        "w": torch.randn(3, 4),
        "nested": {"list": [torch.arange(5), 2, "text"], "größe": torch.tensor(1.5)},
        "empty": torch.empty(0, 3),
        "step": 17,
    }
    path = folder / "ck"
    dcp.save(state, checkpoint_id=path, no_dist=True)
    probe("metadata", path / ".metadata", path / ".metadata")

    blank = {
        "w": torch.zeros(3, 4),
        "nested": {"list": [torch.zeros(5, dtype=torch.int64), 0, ""], "größe": torch.tensor(0.0)},
        "empty": torch.empty(0, 3),
        "step": 0,
    }
    dcp.load(blank, checkpoint_id=path, no_dist=True)
    assert torch.equal(blank["w"], state["w"]) and torch.equal(blank["nested"]["list"][0], torch.arange(5))
    assert blank["step"] == 17 and blank["nested"]["list"][1:] == [2, "text"]

    keys = _load_state_dict_from_keys({"w", "nested"}, checkpoint_id=path)
    assert torch.equal(keys["w"], state["w"]) and keys["nested"]["größe"] == 1.5

    dcp_to_torch_save(path, folder / "whole.pt")
    whole = torch.load(folder / "whole.pt", weights_only=False)
    assert torch.equal(whole["w"], state["w"]) and whole["nested"]["list"][2] == "text"


def check_far(probe, folder):
    """Metadata and a tensor's item as sherd writes them, in a file with a hole, at places that only 64 bits reach."""
    state = {"w": torch.randn(30, 7), "step": 7}
    path = folder / "far"
    dcp.save(state, checkpoint_id=path, no_dist=True)
    (folder / "data").write_bytes(bytes(state["w"].view(-1).view(torch.uint8).tolist()))
    probe("item", "float32", "[30, 7]", "[7, 1]", folder / "data", folder / "item")
    metadata = pickle.loads((path / ".metadata").read_bytes())
    with open(path / "__0_0.distcp", "r+b") as stream:
        for number, (index, info) in enumerate(metadata.storage_data.items()):
            stream.seek(info.offset)
            item = (folder / "item").read_bytes() if index.fqn == "w" else stream.read(info.length)
            info.offset, info.length = (5 << 30) + (number << 20) + 3, len(item)
            stream.seek(info.offset)
            stream.write(item)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    probe("metadata", path / ".metadata", path / ".metadata")
    blank = {"w": torch.zeros(30, 7), "step": 0}
    dcp.load(blank, checkpoint_id=path, no_dist=True)
    assert torch.equal(blank["w"], state["w"]) and blank["step"] == 7


def main(program):
    torch.manual_seed(0)
    probe = Probe(program)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_random(probe, folder)
        check_older(probe, folder)
        check_hostile(probe, folder)
        check_load(probe, folder)
        check_far(probe, folder)
    print(f"{CASES} metadata and two checkpoints are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
