"""Checkpoints between sherd and torch.distributed.checkpoint, in both directions, with the torch that is installed."""

from __future__ import annotations

import os
import pickle
import random
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
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import sherd

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex32, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
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
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.contiguous().view(-1).view(torch.uint8).equal(b.contiguous().view(-1).view(torch.uint8))
            if a.numel() > 0
            else a.shape == b.shape
        )
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

    def run_torch(self, ranks: int, path: str, collectives: bool) -> None:
        program = Path(__file__).with_name("checkpoint_program.py")
        rendezvous = os.path.join(self.folder, f"store-{random.random()}")
        children = [
            subprocess.Popen(
                [sys.executable, str(program), str(rank), str(ranks), rendezvous, path, str(int(collectives))],
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        for child in children:
            _, errors = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 0, errors)

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

    def test_a_value_that_one_rank_cannot_pickle_is_an_error_on_all(self) -> None:
        def texts(rank: int) -> list[str]:
            found = []
            for value in (lambda: 0, {(1, 2): 3}):
                state = {"a": value if rank == 1 else 0, "w": torch.zeros(3)}
                for call in (sherd.save, lambda *arguments: sherd.save_async(*arguments).wait(), sherd.load):
                    with self.assertRaises(ValueError) as caught:
                        call(state, self.path)
                    found.append(str(caught.exception))
            return found

        sherd.save({"a": 0, "w": torch.ones(3)}, self.path)
        first, second = sherd.spawn(2, texts)
        self.assertEqual(first, second)
        for text in first[:3]:
            self.assertIn("rank 1: save: a value of the state cannot be pickled\n      type: <class 'function'>", text)
        for text in first[3:]:
            self.assertIn("rank 1: save: a key of a state is neither text nor an integer\n      key: (1, 2)", text)
        self.assertTrue(same(sherd.load_state_dict(self.path), {"a": 0, "w": torch.ones(3)}))

    def test_damage_that_a_crc_covers(self) -> None:
        state = {"w": numbers((300, 300)), "o": {"text": "x" * 50}}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        file = os.path.join(self.path, "__0_0.distcp")
        spans = []
        metadata = dcp.FileSystemReader(self.path).read_metadata()
        for info in metadata.storage_data.values():
            data = Path(file).read_bytes()[info.offset : info.offset + info.length]
            item = os.path.join(self.folder, "item.zip")
            Path(item).write_bytes(data)
            with zipfile.ZipFile(item) as archive:
                for record in archive.infolist():
                    name = record.filename.split("/", 1)[1]
                    start = record.header_offset + 30 + len(record.filename)
                    extra = int.from_bytes(data[record.header_offset + 28 : record.header_offset + 30], "little")
                    if name in ("data.pkl", "data/0"):
                        spans.append((info.offset + start + extra, record.file_size))
        original = Path(file).read_bytes()
        rng = random.Random(1)
        for start, size in spans:
            for _ in range(20):
                damaged = bytearray(original)
                damaged[start + rng.randrange(size)] ^= 1 << rng.randrange(8)
                Path(file).write_bytes(damaged)
                with self.assertRaises((RuntimeError, ValueError)):
                    sherd.load({"w": torch.zeros(300, 300), "o": {"text": ""}}, self.path)

    def test_one_bit_anywhere(self) -> None:
        state = {"w": numbers((64, 64)), "o": {"text": "x" * 50}, "n": [1, 2, 3]}
        sherd.save(state, self.path)
        rng = random.Random(2)
        for name in sorted(os.listdir(self.path)):
            file = os.path.join(self.path, name)
            original = Path(file).read_bytes()
            for _ in range(60):
                damaged = bytearray(original)
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                Path(file).write_bytes(damaged)
                with self.assertRaises((RuntimeError, ValueError)) as caught:
                    sherd.load(emptied(state), self.path)
                self.assertIn(name, str(caught.exception))
            Path(file).write_bytes(original)
        sherd.load(emptied(state), self.path)

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
