"""safetensors and torch.save between sherd and the libraries that they come from, in both directions."""

from __future__ import annotations

import collections
import datetime
import json
import os
import shutil
import tempfile
import unittest
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from test_checkpoint import DTYPES, emptied, everything, numbers, same

import sherd

try:
    import safetensors.torch
except ImportError:
    safetensors = None  # type: ignore[assignment]

try:
    import zstandard
except ImportError:
    zstandard = None  # type: ignore[assignment]


class TestOfFormats(unittest.TestCase):
    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "ck")

    def tearDown(self) -> None:
        shutil.rmtree(self.folder)

    def assert_same(self, expected: dict[Any, Any], found: dict[Any, Any]) -> None:
        self.assertEqual(list(expected), list(found))
        for key in expected:
            self.assertTrue(same(expected[key], found[key]), f"{key}: {expected[key]} became {found[key]}")


class TorchSaveTest(TestOfFormats):
    def test_torch_save_to_sherd(self) -> None:
        state = everything()
        torch.save(state, self.path)  # the name says nothing
        self.assert_same(state, sherd.load_state_dict(self.path))
        loaded = emptied(state)
        sherd.load(loaded, self.path)
        self.assert_same(state, loaded)

    def test_sherd_to_torch_load(self) -> None:
        state = everything()
        sherd.save(state, self.path + ".pt")
        self.assert_same(state, torch.load(self.path + ".pt", weights_only=False))
        self.assertEqual(os.listdir(self.folder), ["ck.pt"])

    def test_a_training_run_of_torch(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
        torch.save(state, self.path)
        loaded = sherd.load_state_dict(self.path)
        # Numbers stay numbers as keys of dicts.
        self.assertEqual(list(loaded["optimizer"]["state"]), [0, 1, 2, 3])
        self.assertIsInstance(loaded["optimizer"]["state"], dict)
        self.assertTrue(same(optimizer.state_dict(), loaded["optimizer"]))
        self.assertTrue(same(dict(model.state_dict()), loaded["model"]))
        # And back, through every format.
        for ending in (".pt", "", ".safetensors"):
            sherd.spawn(2, lambda rank, to=self.path + "2" + ending: sherd.save(state, to))
            again = sherd.load_state_dict(self.path + "2" + ending)
            self.assertTrue(same(optimizer.state_dict(), again["optimizer"]), ending)
        back = torch.load(self.path + "2.pt")
        other = torch.optim.AdamW(model.parameters(), lr=0.5)
        other.load_state_dict(back["optimizer"])
        self.assertEqual(other.param_groups[0]["lr"], 0.1)

    def test_views_parameters_and_kinds_of_dicts(self) -> None:
        whole = numbers((6, 5))
        state = {
            "whole": whole,
            "row": whole[2],
            "block": whole[1:4, 2:4],
            "transposed": whole.t(),
            "expanded": numbers((1, 5)).expand(3, 5),
            "parameter": torch.nn.Parameter(numbers((3,))),
            "frozen": torch.nn.Parameter(numbers((3,)), requires_grad=False),
            "grad": numbers((3,)).requires_grad_(),
            "ordered": collections.OrderedDict(b=numbers((1,)), a=numbers((2,))),
            "half": whole.half()[::2, ::2],
            "size": [numbers((2,)), torch.Size([1, 2])],
        }
        torch.save(state, self.path)
        found = sherd.load_state_dict(self.path)
        for key in ("whole", "row", "block", "transposed", "expanded", "parameter", "frozen", "grad", "half"):
            self.assertTrue(found[key].equal(state[key].detach()), key)
        self.assertEqual(list(found["ordered"]), ["b", "a"])

    def test_a_module_that_was_pickled_whole(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2, bias=False))
        torch.save(model, self.path)
        found = sherd.load_state_dict(self.path)
        flat = {f"{i}.{name}": tensor for i, part in found.items() for name, tensor in part.items()}
        self.assert_same(dict(model.state_dict()), flat)

    def test_torchscript(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        torch.jit.script(model).save(self.path)
        state = {key: torch.zeros_like(value) for key, value in model.state_dict().items()}
        result = sherd.load(state, self.path)
        self.assertEqual(result.unexpected, [])
        self.assert_same(dict(model.state_dict()), state)

    def test_objects_that_are_not_known(self) -> None:
        state = {"when": datetime.timedelta(seconds=5), "set": {1, 2}, "big": 2**70, "w": numbers((2,))}
        torch.save(state, self.path)
        loaded = sherd.load_state_dict(self.path)
        for ending in (".pt", "", ".safetensors"):
            sherd.save(loaded, self.path + "2" + ending)
            again = sherd.load_state_dict(self.path + "2" + ending)
            for key in ("when", "set", "big"):
                value = again[key].load() if isinstance(again[key], sherd.OpaqueObject) else again[key]
                self.assertEqual(value, state[key], ending)
        back = torch.load(self.path + "2.pt", weights_only=False)
        self.assert_same(state, back)

    def test_an_old_file(self) -> None:
        torch.save({"w": numbers((2,))}, self.path, _use_new_zipfile_serialization=False)
        with self.assertRaises(RuntimeError) as caught:
            sherd.load_state_dict(self.path)
        self.assertEqual(
            str(caught.exception),
            "load: a file of torch.save of before PyTorch 1.6 is not read\n"
            f"  file: {self.path}\n"
            "  help: torch.save(torch.load(path), path) with a PyTorch since 1.6 writes it anew",
        )

    def test_a_hostile_pickle_runs_nothing(self) -> None:
        target = os.path.join(self.folder, "executed")

        class Hostile:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.mkdir, (target,))

        torch.save({"w": numbers((2,)), "evil": Hostile()}, self.path)
        loaded = sherd.load_state_dict(self.path)
        self.assertTrue(loaded["w"].equal(numbers((2,))))
        self.assertIsInstance(loaded["evil"], sherd.OpaqueObject)
        self.assertFalse(os.path.exists(target))

    def test_damage_that_a_crc_covers(self) -> None:
        torch.save({"w": numbers((300, 300))}, self.path)
        original = Path(self.path).read_bytes()
        at = original.find(numbers((300, 300)).numpy().tobytes())
        self.assertGreater(at, 0)
        for place in (at, at + 12345, at + 300 * 300 * 4 - 1):
            damaged = bytearray(original)
            damaged[place] ^= 1
            Path(self.path).write_bytes(damaged)
            with self.assertRaises(RuntimeError) as caught:
                sherd.load({"w": torch.zeros(300, 300)}, self.path)
            self.assertIn("CRC found", str(caught.exception))

    # Distributed checkpoints of before PyTorch 2.4

    def test_a_file_that_others_packed_again(self) -> None:
        state = {"w": numbers((300, 300)), "v": numbers((5,)), "step": 3}
        sherd.save(state, self.path, format="torch.save")
        names = []
        with zipfile.ZipFile(self.path) as given, zipfile.ZipFile(self.path + ".zip", "w") as packed:
            for record in given.infolist():
                names.append(record.filename)
                packed.writestr(record.filename, given.read(record.filename))
        self.assertIn("archive/.data/sherd.digests", names)
        self.assert_same(state, torch.load(self.path + ".zip", weights_only=True))
        self.assert_same(state, sherd.load_state_dict(self.path + ".zip"))

    def test_dicts_that_were_saved_whole(self) -> None:
        from torch.distributed.checkpoint import _version

        state = {"w": numbers((2, 2)), "scheduler": {"a": 1, "deep": {"b": [1, 2]}}}
        _version._derived_version = "2_3"
        try:
            dcp.save(state, checkpoint_id=self.path, no_dist=True)
        finally:
            _version._derived_version = None
        loaded: dict[str, Any] = {"w": torch.zeros(2, 2), "scheduler": {"a": 0, "deep": {"b": []}}}
        sherd.load(loaded, self.path)
        self.assertTrue(same(state, loaded), str(loaded))

    # Compression

    @unittest.skipIf(zstandard is None, "needs zstandard")
    def test_compressed_to_torch_and_back(self) -> None:
        from torch.distributed.checkpoint._extension import ZStandard

        state = everything()
        sherd.save(state, self.path, compress=True)
        loaded = emptied(state)
        dcp.load(loaded, checkpoint_id=self.path, no_dist=True)
        self.assert_same(state, loaded)
        again = emptied(state)
        sherd.load(again, self.path)
        self.assert_same(state, again)
        plain = self.path + "-plain"
        sherd.save({"zeros": torch.zeros(1 << 20)}, self.path)
        sherd.save({"zeros": torch.zeros(1 << 20)}, plain, compress=True)
        self.assertLess(os.path.getsize(plain + "/__0_0.distcp"), 10000)

        writer = dcp.FileSystemWriter(self.path + "-torch", _extensions=[ZStandard()])
        dcp.save(state, storage_writer=writer, no_dist=True)
        self.assert_same(state, sherd.load_state_dict(self.path + "-torch"))

    def test_formats_that_are_not_there(self) -> None:
        with self.assertRaises(ValueError) as caught:
            sherd.save({}, self.path, format="hdf5")
        self.assertIn("there are: automatic, dcp, safetensors, torch.save", str(caught.exception))


@unittest.skipIf(safetensors is None, "needs safetensors")
class SafetensorsTest(TestOfFormats):
    # Those of the library that PyTorch has, too. Two float4 share a byte, which not every shape fills: test_safetensors.py has them.
    DTYPES = [dtype for dtype in DTYPES if dtype not in (torch.complex32, torch.complex128, torch.float4_e2m1fn_x2)]

    def tensors(self) -> dict[str, torch.Tensor]:
        shapes = [(3, 5), (), (0,), (4, 0, 2), (7,), (2, 3, 4)]
        state = {str(dtype): numbers(shapes[i % 6], dtype, i) for i, dtype in enumerate(self.DTYPES)}
        state["ünïcode.with.dots \"and\" quotes"] = numbers((2,))
        return state

    def test_one_file_to_sherd(self) -> None:
        state = self.tensors()
        safetensors.torch.save_file(state, self.path, metadata={"author": "me"})
        found = sherd.load_state_dict(self.path)
        self.assertEqual(sorted(state), sorted(found))
        for key, value in state.items():
            self.assertTrue(same(value, found[key]), key)
        loaded = emptied(state)
        sherd.load(loaded, self.path)
        self.assertTrue(same(state, loaded))

    def test_sherd_to_one_file(self) -> None:
        state = self.tensors()
        path = self.path + ".safetensors"
        sherd.spawn(3, lambda rank: sherd.save({**state, "step": 7, "model": {"w": numbers((3,))}}, path))
        found = safetensors.torch.load_file(path)
        self.assertEqual(sorted([*state, "model.w"]), sorted(found))
        for key, value in state.items():
            self.assertTrue(same(value, found[key]), key)
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
        self.assertEqual(json.loads(metadata["sherd.objects"]), {"step": 7})
        self.assertEqual(json.loads(metadata["sherd.paths"])["model.w"], ["model", "w"])
        back = sherd.load_state_dict(path)
        self.assertEqual(back["step"], 7)
        self.assertTrue(back["model"]["w"].equal(numbers((3,))))
        self.assertEqual(os.listdir(self.folder), ["ck.safetensors"])

    def test_files_with_an_index(self) -> None:
        state = self.tensors()
        writer = dcp.HuggingFaceStorageWriter(self.path, {key: i % 3 + 1 for i, key in enumerate(state)})
        dcp.save(state, storage_writer=writer, no_dist=True)
        self.assertTrue(os.path.exists(self.path + "/model.safetensors.index.json"))
        found = sherd.load_state_dict(self.path)
        for key, value in state.items():
            self.assertTrue(same(value, found[key]), key)

    def test_files_of_ranks_both_ways(self) -> None:
        whole = {"a": numbers((10, 6)), "b": numbers((7, 5, 3), torch.bfloat16), "c": numbers((9,), torch.int64)}
        placements: dict[str, list[Any]] = {
            "a": [sherd.Shard(0), sherd.Shard(1)],
            "b": [sherd.Replicate(), sherd.Shard(2)],
            "c": [sherd.StridedShard(0, 2), sherd.Shard(0)],
        }

        def save(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (2, 2))
            state: dict[str, Any] = {k: sherd.distribute_tensor(v, mesh, placements[k]) for k, v in whole.items()}
            state["step"] = 5
            sherd.save(state, self.path, format="safetensors")

        sherd.spawn(4, save)
        loaded = emptied(whole)
        dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(self.path), no_dist=True)
        self.assertTrue(same(whole, loaded))
        self.assertEqual(sherd.load_state_dict(self.path)["step"], 5)

        # What torch's ranks write is read in the test of checkpoints; here it is one rank's file.
        writer = dcp.HuggingFaceStorageWriter(self.path + "2", save_distributed=True)
        dcp.save(whole, storage_writer=writer, no_dist=True)
        self.assertIn("shard-00001-model-00001-of-00001.safetensors", os.listdir(self.path + "2"))

        def load(rank: int) -> bool:
            mesh = sherd.init_device_mesh("cpu", (3,))
            state: dict[str, Any] = {
                k: sherd.distribute_tensor(torch.zeros_like(v), mesh, [sherd.Shard(0)]) for k, v in whole.items()
            }
            sherd.load(state, self.path + "2")
            return same(whole, {k: sherd.full_tensor(v) for k, v in state.items()})

        self.assertEqual(sherd.spawn(3, load), [True] * 3)

    def test_one_bit_anywhere_in_a_folder(self) -> None:
        state = {"w": numbers((20, 20)), "n": 3}
        sherd.save(state, self.path, format="safetensors")
        for name in sorted(os.listdir(self.path)):
            file = Path(self.path, name)
            original = file.read_bytes()
            for place in range(0, len(original), 7):
                damaged = bytearray(original)
                damaged[place] ^= 1 << place % 8
                file.write_bytes(damaged)
                with self.assertRaises((RuntimeError, ValueError)) as caught:
                    sherd.load(emptied(state), self.path)
                self.assertIn(name, str(caught.exception))
            file.write_bytes(original)
        sherd.load(emptied(state), self.path)


if __name__ == "__main__":
    unittest.main()
