"""Checkpoints between sherd and torch.distributed.checkpoint, in both directions, with the torch that is installed."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import sherd

try:
    import zstandard
except ImportError:  # an environment that was not made for these tests
    zstandard = None  # type: ignore[assignment]

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex32, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
]  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> torch.Tensor:
    """Any bits that are a value of the dtype, the same for the same arguments."""
    count = 1
    for size in shape:
        count *= size
    values = (torch.arange(count) * 7 + salt) % 113
    if dtype == torch.bool:
        return (values % 2 == 0).view(shape)
    if dtype.is_complex:
        return torch.complex(values.double(), -values.double()).to(dtype).view(shape)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return (values % 120).to(torch.uint8).view(dtype).view(shape)
    return values.to(dtype).view(shape)


def same(a: Any, b: Any) -> bool:
    """Kinds, dtypes, sizes and every bit."""
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        bits = [x.contiguous().view(-1).view(torch.uint8) for x in (a, b)]
        return bits[0].equal(bits[1])
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def emptied(state: Any) -> Any:
    """The same structure without the values."""
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state)
    if isinstance(state, dict):
        return {key: emptied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [emptied(value) for value in state]
    return None if state is None else type(state)()


def everything() -> dict[str, Any]:
    """What 3.12 of the formats' test plan names."""
    return {
        "dtypes": {str(dtype): numbers((3, 5), dtype, salt) for salt, dtype in enumerate(DTYPES)},
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0),
        "empty2": torch.zeros(3, 0, 2, dtype=torch.int64),
        "transposed": numbers((4, 6)).t(),
        "channels_last": numbers((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last),
        "five": numbers((2, 3, 2, 3, 2), torch.float64),
        "sliced": numbers((10, 10))[2:5, 3:9],
        "long": numbers((70000,), torch.int8),
        "wide": numbers((2, 66000), torch.int16),
        "ünïcode.with.dots": numbers((2,)),
        "nested": {"list": [numbers((2,)), {"deep": numbers((3,))}, 5], "dict": {"a": 1, "b": [1, 2, 3]}},
        "int": 42,
        "large": 2**62,
        "negative": -7,
        "float": 0.1,
        "text": "größe",
        "none": None,
        "true": True,
        "bytes": b"\x00\x01",
        "tuple": (1, (2.0, "three"), [4]),
        "tensors in a tuple": (numbers((2, 2)), 1),
        "step": torch.tensor(1000),
    }


def own_values(rank: int) -> dict[str, Any]:
    """What each rank has under the same keys, of its own values and sizes; the last of its own keys."""
    return {
        "own": numbers((4,), salt=10 * rank),
        "own size": numbers((rank + 1, 2), torch.int16, salt=rank),
        "own dtype": numbers((3,), torch.float64 if rank == 1 else torch.float32, salt=rank),
        "rank": rank,
        "text": "x" * rank,
        f"only {rank}": [rank, rank + 1],
    }


class CheckpointTest(unittest.TestCase):
    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "ck")

    def tearDown(self) -> None:
        shutil.rmtree(self.folder)

    def test_torch_to_sherd(self) -> None:
        state = everything()
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        loaded = emptied(state)
        sherd.load(loaded, self.path)
        for key in state:
            self.assertTrue(same(state[key], loaded[key]), f"{key}: {state[key]} became {loaded[key]}")
        whole = sherd.load_state_dict(self.path)
        for key in state:
            self.assertTrue(same(state[key], whole[key]), f"{key}: {state[key]} became {whole[key]}")

    def test_sherd_to_torch(self) -> None:
        state = everything()
        sherd.save(state, self.path)
        loaded = emptied(state)
        dcp.load(loaded, checkpoint_id=self.path, no_dist=True)
        for key in state:
            self.assertTrue(same(state[key], loaded[key]), f"{key}: {state[key]} became {loaded[key]}")
        keys = {"nested", "dtypes", "scalar", "int"}
        some = _load_state_dict_from_keys(keys, checkpoint_id=self.path)
        for key in keys:
            self.assertTrue(same(state[key], some[key]), f"{key}: {state[key]} became {some[key]}")
        dcp_to_torch_save(self.path, os.path.join(self.folder, "ck.pt"))
        whole = torch.load(os.path.join(self.folder, "ck.pt"), weights_only=False)
        for key in state:
            self.assertTrue(same(state[key], whole[key]), f"{key}: {state[key]} became {whole[key]}")

    def test_dicts_with_ints_for_keys(self) -> None:
        state = {
            "gaps": {0: numbers((2,)), 2: numbers((3,)), -1: 3, 10**9: "far"},
            "counted": {0: numbers((2,)), 1: {0: 5}},
            "mixed": {5: numbers((2,)), "x": 1},
            "inside": [{7: numbers((2,))}, {"deep": {8: [numbers((1,)), 2]}}],
        }

        def with_texts(value: Any) -> Any:
            if isinstance(value, dict):
                return {str(key): with_texts(item) for key, item in value.items()}
            return [with_texts(item) for item in value] if isinstance(value, list) else value

        sherd.save(state, self.path)
        self.assertTrue(same(state, sherd.load_state_dict(self.path)))
        loaded = emptied(state)
        sherd.load(loaded, self.path)
        self.assertTrue(same(state, loaded), loaded)
        # torch has texts for such keys wherever it takes a state apart.
        dcp_to_torch_save(self.path, os.path.join(self.folder, "ck.pt"))
        back = torch.load(os.path.join(self.folder, "ck.pt"), weights_only=False)
        self.assertTrue(same(with_texts(state), back), back)
        planner_data = pickle.loads(Path(self.path, ".metadata").read_bytes()).planner_data
        dcp.save(state, checkpoint_id=self.path + "2", no_dist=True)
        expected = pickle.loads(Path(self.path + "2", ".metadata").read_bytes()).planner_data
        self.assertEqual(planner_data, expected)
        # Whichever way it goes, sherd has the ints again.
        sherd.rewrite_checkpoint(self.path, self.path + "3.pt")
        self.assertTrue(same(state, torch.load(self.path + "3.pt", weights_only=True)))
        sherd.rewrite_checkpoint(self.path + "3.pt", self.path + "3")
        self.assertTrue(same(state, sherd.load_state_dict(self.path + "3")))
        # A text that reads as an int beside ints: torch's form has no room for both.
        both = {"both": {5: numbers((2,)), "7": 1}}
        sherd.save(both, self.path)
        self.assertTrue(same(both, sherd.load_state_dict(self.path)))

    def test_many_keys(self) -> None:
        state = {f"layer.{i}.weight": numbers((2, 3), salt=i) for i in range(2500)}
        for write, read in [
            (lambda: dcp.save(state, checkpoint_id=self.path, no_dist=True), lambda s: sherd.load(s, self.path)),
            (lambda: sherd.save(state, self.path), lambda s: dcp.load(s, checkpoint_id=self.path, no_dist=True)),
        ]:
            write()
            loaded = emptied(state)
            read(loaded)
            self.assertTrue(same(state, loaded))
            shutil.rmtree(self.path)

    def test_items_are_what_torch_writes(self) -> None:
        state = {"w": numbers((3, 4)), "h": numbers((5,), torch.float16), "s": torch.tensor(1.0)}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        sherd.save(state, self.path + "2")
        for key in state:
            self.assertEqual(self.item(self.path, key), self.item(self.path + "2", key), key)

    def item(self, path: str, key: str) -> bytes:
        metadata = dcp.FileSystemReader(path).read_metadata()
        info = next(info for index, info in metadata.storage_data.items() if index.fqn == key)
        with open(os.path.join(path, info.relative_path), "rb") as file:
            file.seek(info.offset)
            return file.read(info.length)

    def test_sharded_to_torch_and_back(self) -> None:
        whole = {"a": numbers((10, 6)), "b": numbers((7, 5, 3), torch.bfloat16), "c": numbers((9,), torch.int64)}
        placements = {
            "a": [sherd.Shard(0), sherd.Shard(1)],
            "b": [sherd.Replicate(), sherd.Shard(2)],
            "c": [sherd.StridedShard(0, 2), sherd.Shard(0)],
        }

        def distributed(state: dict[str, torch.Tensor], ranks: tuple[int, ...], where: Any) -> dict[str, torch.Tensor]:
            mesh = sherd.init_device_mesh("cpu", ranks)
            return {k: sherd.distribute_tensor(v, mesh, where[k]) for k, v in state.items()}

        sherd.spawn(4, lambda rank: sherd.save(distributed(whole, (2, 2), placements), self.path))
        loaded = emptied(whole)
        dcp.load(loaded, checkpoint_id=self.path, no_dist=True)
        self.assertTrue(same(whole, loaded))

        dcp.save(whole, checkpoint_id=self.path + "2", no_dist=True)
        other = {"a": [sherd.Shard(1)], "b": [sherd.Shard(0)], "c": [sherd.Shard(0)]}

        def load(rank: int) -> bool:
            state = distributed(emptied(whole), (3,), other)
            sherd.load(state, self.path + "2")
            return same(whole, {k: sherd.full_tensor(v) for k, v in state.items()})

        self.assertEqual(sherd.spawn(3, load), [True] * 3)

    def test_processes_of_torch(self) -> None:
        for ranks in (2, 3, 4):
            for collectives in (True, False):
                path = f"{self.path}-{ranks}-{collectives}"
                self.run_torch(ranks, path, collectives)
                expected = {"a": numbers((10, 6)), "b": numbers((5, 4), torch.float64), "plain": numbers((4,)), "step": 7}
                whole = sherd.load_state_dict(path)
                for key, value in expected.items():
                    self.assertTrue(same(value, whole[key]), f"{ranks} ranks, {key}")

                def load(rank: int, path: str = path, expected: dict[str, Any] = expected) -> bool:
                    mesh = sherd.init_device_mesh("cpu", (2,))
                    state: dict[str, Any] = emptied(expected)
                    for key, dim in (("a", 1), ("b", 0)):
                        state[key] = sherd.distribute_tensor(state[key], mesh, [sherd.Shard(dim)])
                    sherd.load(state, path)
                    full = {k: sherd.full_tensor(v) if k in "ab" else v for k, v in state.items()}
                    return same(expected, full)

                self.assertEqual(sherd.spawn(2, load), [True, True], f"{ranks} ranks, collectives {collectives}")

    def test_each_rank_loads_what_it_saved_for_itself(self) -> None:
        ranks = 3
        self.run_torch(ranks, self.path, collectives=False)

        def load(rank: int) -> bool:
            state = emptied(own_values(rank))
            result = sherd.load(state, self.path)
            self.assertEqual(set(result.unexpected), {"a", "b", "plain", "step"} | {f"only {r}" for r in range(3) if r != rank})
            whole = sherd.load_state_dict(self.path)
            self.assertTrue(same(whole["a"], numbers((10, 6))))
            return same(state, own_values(rank)) and all(same(value, whole[key]) for key, value in own_values(rank).items())

        self.assertEqual(sherd.spawn(ranks, load), [True] * ranks)
        # One rank of another program, and ranks that did not save: the first rank's.
        first = own_values(0)
        self.assertTrue(all(same(value, sherd.load_state_dict(self.path)[key]) for key, value in first.items()))

        def load_more(rank: int) -> bool:
            state = emptied(own_values(rank if rank < ranks else 0))
            sherd.load(state, self.path)
            return same(state, own_values(rank if rank < ranks else 0))

        self.assertEqual(sherd.spawn(4, load_more), [True] * 4)

        info = sherd.inspect_checkpoint(self.path)
        self.assertEqual(info.of_each_rank, ["own", "own dtype", "own size", "plain", "rank", "step", "text"])
        self.assertEqual(sherd.rewrite_checkpoint([self.path], self.path + ".pt").of_each_rank, info.of_each_rank)

    def test_damage_in_what_a_rank_saved_for_itself(self) -> None:
        self.run_torch(2, self.path, collectives=False)
        self.assertEqual(sherd.verify_checkpoint(self.path).damage, [])
        metadata = pickle.loads(Path(self.path, "__1.metadata").read_bytes())
        place = next(info for index, info in metadata.storage_data.items() if index.fqn == "own")
        file = Path(self.path, place.relative_path)
        damaged = bytearray(file.read_bytes())
        at = damaged.index(numbers((4,), salt=10).numpy().tobytes(), place.offset)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        (damage,) = sherd.verify_checkpoint(self.path).damage
        self.assertEqual((damage.file, damage.names), (place.relative_path, ["own (rank 1)"]))

    def test_parts_that_are_stored_nowhere(self) -> None:
        """Every rank names all rectangles, its own and those of the others."""
        self.run_torch(2, self.path, collectives=True)
        file = Path(self.path, ".metadata")
        metadata = pickle.loads(file.read_bytes())
        chunks = metadata.state_dict_metadata["a"].chunks
        chunks.remove(next(chunk for chunk in chunks if tuple(chunk.offsets) == (5, 0)))
        lost = [index for index in metadata.storage_data if index.fqn == "a" and tuple(index.offset) == (5, 0)]
        for index in lost:
            del metadata.storage_data[index]
        file.write_bytes(pickle.dumps(metadata))

        def text(rank: int) -> str:
            mesh = sherd.init_device_mesh("cpu", (3,))
            state = {"a": sherd.distribute_tensor(torch.zeros(10, 6), mesh, [sherd.Shard(1)]), "step": 0}
            with self.assertRaises(ValueError) as caught:
                sherd.load(state, self.path)
            self.assertEqual(sherd.full_tensor(state["a"]).sum(), 0)
            return str(caught.exception)

        texts = sherd.spawn(3, text)
        self.assertEqual(len(set(texts)), 1)
        for rank in range(3):
            missing = f"a: load: the checkpoint has no data for the part [5:10, {2 * rank}:{2 * rank + 2}]"
            self.assertRegex(texts[0], rf"(?s)rank {rank}: load: .*?{re.escape(missing)}")

    def test_ranks_of_sherd_to_ranks_of_torch(self) -> None:
        """Into DTensors of torch, in another layout and on another number of ranks."""
        whole = {"a": numbers((10, 6)), "b": numbers((5, 4), torch.float64), "plain": numbers((4,)), "step": 7}
        for ranks in (2, 4):
            path = f"{self.path}-{ranks}"

            def save(rank: int, ranks: int = ranks, path: str = path) -> None:
                mesh = sherd.init_device_mesh("cpu", (ranks // 2, 2))
                state = dict(whole)
                state["a"] = sherd.distribute_tensor(whole["a"], mesh, [sherd.Shard(0), sherd.Shard(1)])
                state["b"] = sherd.distribute_tensor(whole["b"], mesh, [sherd.Replicate(), sherd.Shard(0)])
                sherd.save(state, path)

            sherd.spawn(ranks, save)
            self.run_torch(2, path, collectives=True, program="checkpoint_load_program.py")

    def run_torch(self, ranks: int, path: str, collectives: bool, program: str = "checkpoint_program.py") -> None:
        file = Path(__file__).with_name(program)
        rendezvous = os.path.join(self.folder, f"store-{random.random()}")
        children = [
            subprocess.Popen(
                [sys.executable, str(file), str(rank), str(ranks), rendezvous, path, str(int(collectives))],
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        for child in children:
            _, errors = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 0, errors)

    def test_more_files_than_may_be_open(self) -> None:
        """A checkpoint of as many ranks, whose files are read by several threads in turn."""
        count = 300
        for format in ("dcp", "safetensors"):
            path = f"{self.path}-{format}"

            def save(rank: int, path: str = path, format: str = format) -> None:
                sherd.save({f"w{rank}": numbers((50,), salt=rank)}, path, format=format)

            sherd.spawn(count, save)
            self.assertGreater(len(os.listdir(path)), count)
        program = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch, sherd
from test_checkpoint import numbers, same
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
for format in ("dcp", "safetensors"):
    path = {self.path!r} + "-" + format
    expected = {{f"w{{rank}}": numbers((50,), salt=rank) for rank in range({count})}}
    for _ in range(2):
        assert same(sherd.load_state_dict(path), dict(sorted(expected.items(), key=lambda item: int(item[0][1:]))))

    def load(rank):
        state = {{key: torch.zeros(50) for key in expected}}
        sherd.load(state, path)
        return same(state, expected)

    assert sherd.spawn(4, load) == [True] * 4
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def test_places_beyond_two_gigabytes(self) -> None:
        """Items moved to where only 64 bits reach, in a file with a hole."""
        state = {"w": numbers((300, 7)), "step": 7}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        file = Path(self.path, "__0_0.distcp")
        metadata = pickle.loads(Path(self.path, ".metadata").read_bytes())
        with open(file, "r+b") as stream:
            for number, info in enumerate(metadata.storage_data.values()):
                stream.seek(info.offset)
                item = stream.read(info.length)
                info.offset = (5 << 30) + (number << 20) + 3
                stream.seek(info.offset)
                stream.write(item)
        Path(self.path, ".metadata").write_bytes(pickle.dumps(metadata))
        loaded = emptied(state)
        sherd.load(loaded, self.path)
        self.assertTrue(same(state, loaded))

    def test_a_file_that_is_missing_and_an_item_that_stands_twice(self) -> None:
        state = {"w": numbers((4, 4))}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        file = Path(self.path, "__0_0.distcp")
        data = file.read_bytes()
        file.unlink()
        with self.assertRaises(RuntimeError) as caught:
            sherd.load(emptied(state), self.path)
        self.assertIn(f"load: a file of the checkpoint is missing\n  file: {file}", str(caught.exception))
        file.write_bytes(data[:-30])
        with self.assertRaises(RuntimeError) as caught:
            sherd.load(emptied(state), self.path)
        self.assertIn("load: a file ends too early", str(caught.exception))
        file.write_bytes(data)
        metadata = pickle.loads(Path(self.path, ".metadata").read_bytes())
        chunks = metadata.state_dict_metadata["w"].chunks
        chunks.append(chunks[0])
        Path(self.path, ".metadata").write_bytes(pickle.dumps(metadata))
        with self.assertRaises(ValueError) as caught:
            sherd.load(emptied(state), self.path)
        self.assertIn("w: load: the checkpoint has two chunks that overlap in the part [0:4, 0:4]", str(caught.exception))

    def test_a_manifest_that_is_gone(self) -> None:
        """Of sherd's own checkpoint it is missed; PyTorch, which wrote over one, has none."""
        state = {"w": numbers((300, 7)), "step": 7}
        sherd.save(state, self.path)
        manifest = Path(self.path, "sherd.manifest")
        by_sherd = pickle.loads(Path(self.path, ".metadata").read_bytes())
        self.assertEqual(by_sherd.sherd_manifest, manifest.name)
        loaded = emptied(state)
        dcp.load(loaded, checkpoint_id=self.path, no_dist=True)
        self.assertTrue(same(state, loaded))
        whole = manifest.read_bytes()
        manifest.unlink()
        with self.assertRaises(RuntimeError) as caught:
            sherd.load(emptied(state), self.path)
        self.assertIn(f"load: a file of the checkpoint is missing\n  file: {manifest}", str(caught.exception))
        loaded = emptied(state)
        sherd.load(loaded, self.path, verify=False)
        self.assertTrue(same(state, loaded))

        other = {"w": numbers((300, 7), salt=3), "step": 8}
        for is_there in [True, False]:
            manifest.write_bytes(whole)
            dcp.save(other, checkpoint_id=self.path, no_dist=True)
            self.assertFalse(hasattr(pickle.loads(Path(self.path, ".metadata").read_bytes()), "sherd_manifest"))
            if not is_there:
                manifest.unlink()
            loaded = emptied(other)
            sherd.load(loaded, self.path)
            self.assertTrue(same(other, loaded))

    def test_hostile_files_on_two_ranks(self) -> None:
        """All ranks say the same, nothing of it is called, and nothing has changed."""
        ran = Path(self.folder, "ran")

        class Hostile:
            def __reduce__(self) -> Any:
                return os.system, (f"touch {ran}",)

        dcp.save({"w": numbers((4, 4)), "o": Hostile()}, checkpoint_id=self.path, no_dist=True)
        ran.unlink(missing_ok=True)  # whatever PyTorch did

        def state_of(mesh: Any) -> dict[str, Any]:
            return {"w": sherd.distribute_tensor(torch.full((4, 4), 7.0), mesh, [sherd.Shard(0)]), "o": None}

        def load_object(rank: int) -> tuple[bool, bool]:
            state = state_of(sherd.init_device_mesh("cpu", (2,)))
            sherd.load(state, self.path)
            return isinstance(state["o"], sherd.OpaqueObject), sherd.full_tensor(state["w"]).equal(numbers((4, 4)))

        self.assertEqual(sherd.spawn(2, load_object), [(True, True)] * 2)
        self.assertFalse(ran.exists())

        file = Path(self.path, ".metadata")
        metadata = pickle.loads(file.read_bytes())
        metadata.planner_data = {"w": Hostile()}
        file.write_bytes(pickle.dumps(metadata))

        def refused(rank: int) -> tuple[str, bool]:
            state = state_of(sherd.init_device_mesh("cpu", (2,)))
            with self.assertRaises(RuntimeError) as caught:
                sherd.load(state, self.path)
            return str(caught.exception), sherd.full_tensor(state["w"]).equal(torch.full((4, 4), 7.0))

        first, second = sherd.spawn(2, refused)
        self.assertEqual(first, second)
        self.assertTrue(first[1])
        self.assertIn(f"{os.system.__module__}.system may not stand here\n", first[0])
        self.assertIn(f"in: {file}", first[0])
        self.assertFalse(ran.exists())

    def test_objects_that_are_not_known(self) -> None:
        state = {"when": __import__("datetime").timedelta(seconds=5), "w": numbers((2,))}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        loaded = sherd.load_state_dict(self.path)
        self.assertIsInstance(loaded["when"], sherd.OpaqueObject)
        sherd.save(loaded, self.path + "2")
        back: dict[str, Any] = {"when": None, "w": torch.zeros(2)}
        dcp.load(back, checkpoint_id=self.path + "2", no_dist=True)
        self.assertEqual(back["when"], state["when"])
        self.assertEqual(loaded["when"].load(), state["when"])

    def test_tuples_and_lists_with_objects_that_are_not_known(self) -> None:
        """As one pickle each, which is what torch makes of them."""
        state = {
            "random": random.Random(5).getstate(),
            "set in a tuple": (1, {2}),
            "large": [2**70],
            "deep": [[1, (2**70, {"a": [{3}]})], "text"],
            "key": ({(1, 2): "a"}, {1.5: 2}),
            "tensor beside it": (numbers((2, 2)), {3}),
            "in a list that is taken apart": [numbers((2,)), [2**70], (1, {2})],
            "bytes": (bytearray(b"ab"), 1j),
        }
        for ending in ("", ".safetensors", ".pt"):
            path = self.path + ending
            sherd.save(state, path)
            loaded = sherd.load_state_dict(path)
            self.assertTrue(same(state, loaded), f"{ending}: {loaded}")
            sherd.save(loaded, path)  # what came back can be saved again
            filled: dict[str, Any] = dict.fromkeys(state)
            filled["in a list that is taken apart"] = [torch.zeros(2), None, None]
            sherd.load(filled, path)
            self.assertTrue(same(state, filled), f"{ending}: {filled}")
        back = emptied(state)
        dcp.load(back, checkpoint_id=self.path, no_dist=True)
        self.assertTrue(same(state, back), back)

    def test_the_state_of_numpys_generator(self) -> None:
        generator = numpy.random.RandomState(7)
        sherd.save({"numpy": generator.get_state(), "list": [numpy.float64(2), {3}]}, self.path)
        expected = generator.random_sample(4)
        loaded = sherd.load_state_dict(self.path)
        self.assertIsInstance(loaded["numpy"], sherd.OpaqueObject)  # torch would have to run numpy's code
        sherd.save(loaded, self.path)
        again = sherd.load_state_dict(self.path)
        other = numpy.random.RandomState(0)
        other.set_state(again["numpy"].load())
        self.assertEqual(list(other.random_sample(4)), list(expected))
        self.assertEqual(again["list"].load(), [numpy.float64(2), {3}])

    def test_tensors_of_several_ranks_beside_an_object_that_is_not_known(self) -> None:
        def refused(rank: int) -> str:
            mesh = sherd.init_device_mesh("cpu", (2,))
            cut = sherd.distribute_tensor(torch.zeros(4), mesh, [sherd.Shard(0)])
            with self.assertRaises(ValueError) as caught:
                sherd.save({"a": ({1}, cut)}, self.path)
            return str(caught.exception)

        for text in sherd.spawn(2, refused):
            self.assertIn("save: an object of Python stands inside a tuple or a list of other values", text)

    def test_a_value_that_one_rank_cannot_save_is_an_error_on_all(self) -> None:
        class Raises:
            def state_dict(self) -> dict[str, Any]:
                raise KeyError("no state")

            def load_state_dict(self, state: dict[str, Any]) -> None:
                pass

        inside_itself: dict[str, Any] = {}
        inside_itself["self"] = [inside_itself]
        values = {
            "a value of the state cannot be pickled\n      type: <class 'function'>": lambda: 0,
            "a key of a state is neither text nor an integer\n      key: (1, 2)": {(1, 2): torch.zeros(1)},
            "a text of the state cannot be written as UTF-8\n      text: '\\udc80'": "\udc80",
            "a state is nested deeper than checkpoints are\n      most: 1000 levels": inside_itself,
            "because: KeyError: 'no state'": Raises(),
        }

        def texts(rank: int) -> list[str]:
            found = []
            for value in values.values():
                state = {"a": value if rank == 1 else 0, "w": torch.zeros(3)}
                for call in (sherd.save, lambda *arguments: sherd.save_async(*arguments).wait(), sherd.load):
                    with self.assertRaises(ValueError) as caught:
                        call(state, self.path)
                    found.append(str(caught.exception))
                    if rank == 1 and isinstance(value, Raises):
                        self.assertIsInstance(caught.exception.__cause__, KeyError)
            return found

        sherd.save({"a": 0, "w": torch.ones(3)}, self.path)
        first, second = sherd.spawn(2, texts)
        self.assertEqual(first, second)
        self.assertEqual(len(first), 3 * len(values))
        for number, text in enumerate(first):
            self.assertIn("rank 1: load: " if number % 3 == 2 else "rank 1: save: ", text)
            self.assertIn(list(values)[number // 3], text)
        self.assertTrue(same(sherd.load_state_dict(self.path), {"a": 0, "w": torch.ones(3)}))

    def assert_named(self, text: str, file: str, at: int, names: dict[str, tuple[int, int]]) -> None:
        """That an error names the file, bytes that the damaged one is among, and a tensor or object that lies there."""
        self.assertIn(f"file: {file}", text)
        ranges = [(int(begin), int(end)) for begin, end in re.findall(r"\bbytes:? (\d+) to (\d+)", text)]
        held = [bytes for bytes in ranges if bytes[0] <= at < bytes[1]]
        self.assertTrue(held, f"byte {at} is in none of {ranges}\n{text}")
        begin, end = max(held, key=lambda bytes: bytes[1] - bytes[0])
        read = re.findall(r"reading: (?:tensor|object) (.*)", text)
        self.assertTrue(read, text)
        there = [name for name, (first, last) in names.items() if first < end and last > begin]
        self.assertIn(read[0], there, f"bytes {begin} to {end}\n{text}")

    def places(self, path: str) -> dict[str, dict[str, tuple[int, int]]]:
        """Of every file: names, and the bytes of their items."""
        metadata = pickle.loads(Path(path, ".metadata").read_bytes())
        files: dict[str, dict[str, tuple[int, int]]] = {}
        for index, info in metadata.storage_data.items():
            files.setdefault(info.relative_path, {})[index.fqn] = (info.offset, info.offset + info.length)
        return files

    def test_damage_that_a_crc_covers(self) -> None:
        state = {"w": numbers((300, 300)), "long": numbers((600000,)), "o": {"text": "x" * 50}, "t": (1, numbers((9,)))}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        file = os.path.join(self.path, "__0_0.distcp")
        places = self.places(self.path)["__0_0.distcp"]
        spans = []
        original = Path(file).read_bytes()
        for name, (begin, end) in places.items():
            data = original[begin:end]
            item = os.path.join(self.folder, "item.zip")
            Path(item).write_bytes(data)
            with zipfile.ZipFile(item) as archive:
                for record in archive.infolist():
                    start = record.header_offset + 30 + len(record.filename)
                    extra = int.from_bytes(data[record.header_offset + 28 : record.header_offset + 30], "little")
                    if record.filename.split("/", 1)[1] in ("data.pkl", "data/0", "byteorder"):
                        spans.append((name, begin + start + extra, record.file_size))
        self.assertEqual(len(spans), 11)
        rng = random.Random(1)
        for name, start, size in spans:
            for _ in range(20):
                damaged = bytearray(original)
                at = start + rng.randrange(size)
                damaged[at] ^= 1 << rng.randrange(8)
                Path(file).write_bytes(damaged)
                with self.assertRaises((RuntimeError, ValueError)) as caught:
                    sherd.load({**emptied(state), "t": None}, self.path)
                self.assert_named(str(caught.exception), file, at, {name: places[name]})

    @unittest.skipIf(zstandard is None, "needs zstandard")
    def test_compressed_items_that_grow_beyond_their_tensor(self) -> None:
        state = {"w": numbers((300, 300)), "step": 5}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.path, _extensions=[ZStandard()]), no_dist=True)
        bomb = io.BytesIO()
        stream = ZStandard().transform_to(bomb)
        for _ in range(64):
            stream.write(bytes(1 << 20))
        stream.flush()
        packed = bomb.getvalue()
        stream.close()
        self.assertLess(len(packed), 1 << 20)
        file = Path(self.path, "__0_0.distcp")
        metadata = pickle.loads(Path(self.path, ".metadata").read_bytes())
        for index, info in metadata.storage_data.items():
            if index.fqn == "w":
                info.offset, info.length = file.stat().st_size, len(packed)
        with file.open("ab") as end:
            end.write(packed)
        Path(self.path, ".metadata").write_bytes(pickle.dumps(metadata))
        with self.assertRaises(RuntimeError) as caught:
            sherd.load(emptied(state), self.path)
        self.assertIn("it is larger than an item may be", str(caught.exception))
        self.assertIn(f"file: {file}", str(caught.exception))
        (damage,) = sherd.verify_checkpoint(self.path).damage
        self.assertEqual((damage.file, damage.names), (file.name, ["w"]))

    def test_tensors_that_unfold_beyond_their_storage(self) -> None:
        """Where the file alone says how large they are."""
        path = os.path.join(self.folder, "wide.pt")
        wide = torch.ones(1).expand(1 << 36)
        torch.save({"w": wide, "t": (wide, 1), "many": (wide[: 1 << 27],) * 3, "few": torch.ones(1).expand(1000)}, path)
        self.assertTrue(same(sherd.load_state_dict(path, ["few"]), {"few": torch.ones(1000)}))
        for name in ["w", "t", "many"]:
            with self.assertRaises(RuntimeError) as caught:
                sherd.load_state_dict(path, [name])
            self.assertIn("load: a tensor is much larger than what is stored of it", str(caught.exception))

    @unittest.skipIf(zstandard is None, "needs zstandard")
    def test_damage_of_compressed_items_of_torch(self) -> None:
        """Nothing covers their bytes but what zstd and the archives inside say."""
        state = {"w": numbers((300, 300)), "o": {"text": "x" * 50}}
        writer = dcp.FileSystemWriter(self.path, _extensions=[ZStandard()])
        dcp.save(state, storage_writer=writer, no_dist=True)
        sherd.load(emptied(state), self.path)
        file = os.path.join(self.path, "__0_0.distcp")
        places = self.places(self.path)["__0_0.distcp"]
        original = Path(file).read_bytes()
        rng = random.Random(4)
        found = 0
        for _ in range(200):
            damaged = bytearray(original)
            at = rng.randrange(len(damaged))
            damaged[at] ^= 1 << rng.randrange(8)
            Path(file).write_bytes(damaged)
            loaded = emptied(state)
            try:
                sherd.load(loaded, self.path)
            except (RuntimeError, ValueError) as error:
                found += 1
                self.assertIn(f"file: {file}", str(error))
                name = next(name for name, (begin, end) in places.items() if begin <= at < end)
                self.assertRegex(str(error), f"reading: (tensor|object) {re.escape(name)}\n")
                self.assertIn(f"{places[name][0]} to {places[name][1]}", str(error))
            else:
                self.assertTrue(same(loaded, state))  # a byte that says nothing, such as a flag
        self.assertGreater(found, 150)

    def test_one_bit_anywhere(self) -> None:
        small = {"w": numbers((64, 64)), "o": {"text": "x" * 50}, "n": [1, 2, 3]}
        large = {"a": numbers((700, 1000)), "b": numbers((3,)), "c": numbers((1500, 500), torch.int64), "o": {"text": "x" * 50}}
        changed = {**large, "c": large["c"] + 1, "o": {"text": "y" * 50}}
        sherd.save(large, self.path + "-base")
        for state, options in (
            (small, {}),
            (large, {}),
            (large, {"compress": True}),
            (changed, {"base": self.path + "-base"}),
        ):
            sherd.save(state, self.path, **options)
            items = self.places(self.path)["__0_0.distcp"]
            rng = random.Random(2)
            folders = [self.path, self.path + "-base"] if "base" in options else [self.path]
            for file in sorted(file for folder in folders for file in Path(folder).iterdir()):
                if file.parent.name.endswith("-base") and not file.name.endswith(".distcp"):
                    continue  # what stands on it does not read these
                original = file.read_bytes()
                for _ in range(60):
                    damaged = bytearray(original)
                    at = rng.randrange(len(damaged))
                    damaged[at] ^= 1 << rng.randrange(8)
                    file.write_bytes(damaged)
                    try:
                        sherd.load(emptied(state), self.path)
                    except (RuntimeError, ValueError) as error:
                        text = str(error)
                    else:
                        # Blocks of the base that were replaced.
                        self.assertTrue(file.parent.name.endswith("-base"), f"{file}, byte {at}")
                        continue
                    self.assertIn(str(file), text)
                    if not file.name.endswith((".distcp", ".distcp.blocks")):
                        continue
                    where = re.search(r"they are: bytes (\d+) to (\d+) of .*__0_0.distcp\n", text)
                    if where is None:
                        self.assert_named(text, str(file), at, items)
                        continue
                    # A block that lies elsewhere than its bytes count.
                    begin, end = re.search(r"bytes: (\d+) to (\d+)\n", text).groups()
                    self.assertTrue(int(begin) <= at < int(end), text)
                    self.assert_named(text, str(file), at - int(begin) + int(where[1]), items)
                file.write_bytes(original)
            sherd.load(emptied(state), self.path)
            shutil.rmtree(self.path)

    def test_one_bit_in_what_several_ranks_want(self) -> None:
        state = {"a": numbers((700, 1000)), "b": numbers((1500, 500), torch.int64)}
        sherd.save(state, self.path)
        file = Path(self.path, "__0_0.distcp")
        places = self.places(self.path)["__0_0.distcp"]
        original = file.read_bytes()

        def text(rank: int) -> str:
            mesh = sherd.init_device_mesh("cpu", (2,))
            whole = {
                key: sherd.distribute_tensor(torch.zeros_like(value), mesh, [sherd.Replicate()])
                for key, value in state.items()
            }
            with self.assertRaises(RuntimeError) as caught:
                sherd.load(whole, self.path)
            return str(caught.exception)

        rng = random.Random(3)
        for _ in range(6):
            at = rng.randrange(len(original))
            damaged = bytearray(original)
            damaged[at] ^= 1
            file.write_bytes(damaged)
            first, second = sherd.spawn(2, text)
            self.assertEqual(first, second)
            self.assert_named(first.replace(", b\n", "\n"), str(file), at, places)

    def test_in_the_background(self) -> None:
        state = {"w": numbers((1000,)), "step": 3}
        future = sherd.save_async(state, self.path)
        state["w"].zero_()
        self.assertGreater(future.wait().bytes, 4000)
        self.assertTrue(future.ready())
        self.assertTrue(same(sherd.load_state_dict(self.path), {"w": numbers((1000,)), "step": 3}))

    def test_stateful(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        sherd.save({"model": model, "optimizer": optimizer, "step": 1}, self.path)
        other = torch.nn.Linear(4, 3)
        optimizer2 = torch.optim.AdamW(other.parameters(), lr=0.5)
        other(torch.ones(2, 4)).sum().backward()
        optimizer2.step()
        state = {"model": other, "optimizer": optimizer2, "step": 0}
        sherd.load(state, self.path)
        self.assertTrue(same(dict(model.state_dict()), dict(other.state_dict())))
        self.assertEqual(optimizer2.param_groups[0]["lr"], 0.1)
        self.assertTrue(optimizer.state[model.weight]["exp_avg"].equal(optimizer2.state[other.weight]["exp_avg"]))
        self.assertEqual(state["step"], 1)


if __name__ == "__main__":
    unittest.main()
