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
from collections.abc import Callable
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

    def test_unknown_objects_keep_their_storages(self) -> None:
        # Each has its bytes in a storage that only its persistent id names.
        complex_numbers = torch.view_as_complex(numbers((3, 2)))
        state = {
            "first": numbers((4,)),
            "quantized": torch.quantize_per_tensor(numbers((5,)), 0.5, 3, torch.qint8),
            "conjugate": complex_numbers.conj(),
            "both": (complex_numbers.conj(), numbers((2,))),
            "last": numbers((6,)),
        }
        torch.save(state, self.path)
        loaded = {"quantized": None, "conjugate": None, "both": None}
        sherd.load(loaded, self.path)
        for key in loaded:
            found = loaded[key].load() if isinstance(loaded[key], sherd.OpaqueObject) else loaded[key]
            both = zip(found, state[key], strict=True) if key == "both" else [(found, state[key])]
            self.assertTrue(all(one.equal(other) for one, other in both), key)
        sherd.rewrite_checkpoint(self.path, self.path + "-rewritten.pt")
        sherd.rewrite_checkpoint(self.path, self.path + "-dcp")
        sherd.rewrite_checkpoint(self.path + "-dcp", self.path + "-back.pt")
        for ending in ("-rewritten.pt", "-back.pt"):
            back = torch.load(self.path + ending, weights_only=False)
            self.assertTrue(back["first"].equal(state["first"]) and back["last"].equal(state["last"]), ending)
            self.assertTrue(back["quantized"].equal(state["quantized"]), ending)
            self.assertTrue(back["conjugate"].equal(state["conjugate"]), ending)
            self.assertTrue(back["both"][0].equal(state["both"][0]) and back["both"][1].equal(state["both"][1]), ending)

    def test_storages_are_shared_and_dicts_ordered(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
        model[2].weight = model[0].weight
        whole = numbers((6, 5))
        buffer = numbers((40,))
        state = {
            "model": model.state_dict(),
            "row": whole[2],
            "whole": whole,
            "block": whole[1:4, 2:4],
            "transposed": whole.t(),
            # Nothing has all of this buffer: parts that follow each other or overlap, and a gap.
            "q": buffer[0:12].view(3, 4),
            "k": buffer[12:24].view(4, 3),
            "overlapping": buffer[20:30].view(2, 5),
            "apart": buffer[35:40],
            "columns": numbers((4, 6))[:, ::2],
            "nested": {"ordered": collections.OrderedDict([(1, numbers((2,))), (0, 3)]), "empty": whole[0:0]},
        }
        state["columns again"] = state["columns"]
        torch.save(state, self.path)
        sherd.rewrite_checkpoint(self.path, self.path + "-files.pt")
        sherd.rewrite_checkpoint(self.path, self.path + "-dcp")
        sherd.rewrite_checkpoint(self.path + "-dcp", self.path + "-back.pt")
        sherd.spawn(2, lambda rank: sherd.save(state, self.path + "-saved.pt"))
        for ending in ("-files.pt", "-back.pt", "-saved.pt"):
            self.assertEqual(sherd.verify_checkpoint(self.path + ending).damage, [], ending)
            back = torch.load(self.path + ending, weights_only=True)
            self.assertEqual(list(back), list(state), ending)
            if ending != "-saved.pt":
                self.assertIs(type(back["model"]), collections.OrderedDict, ending)
                self.assertEqual(back["model"]._metadata, state["model"]._metadata, ending)
                self.assertIs(type(back["nested"]["ordered"]), collections.OrderedDict, ending)
            self.assertEqual(list(back["nested"]["ordered"].items())[1], (0, 3))
            for key in state:
                if key == "model":
                    self.assert_same(dict(state[key]), dict(back[key]))
                elif key != "nested":
                    self.assertTrue(back[key].equal(state[key]), f"{ending}: {key}")

            def storage(tensor: torch.Tensor) -> int:
                return tensor.untyped_storage().data_ptr()

            self.assertEqual(storage(back["model"]["0.weight"]), storage(back["model"]["2.weight"]), ending)
            for key in ("row", "block", "transposed"):
                self.assertEqual(storage(back[key]), storage(back["whole"]), f"{ending}: {key}")
            back["whole"][2, 3] = 77
            self.assertEqual((back["row"][3], back["block"][1, 1], back["transposed"][3, 2]), (77, 77, 77), ending)
            self.assertEqual(storage(back["q"]), storage(back["k"]), ending)
            self.assertEqual(storage(back["q"]), storage(back["overlapping"]), ending)
            self.assertEqual(back["q"].untyped_storage().nbytes(), 30 * 4, ending)
            self.assertEqual(back["apart"].untyped_storage().nbytes(), 5 * 4, ending)
            self.assertEqual(storage(back["columns"]), storage(back["columns again"]), ending)

    def test_tensors_beside_an_ordered_dict(self) -> None:
        """Attributes of it are no entries: their storages are not written, and another tensor's must not be taken for them."""
        model = torch.nn.Linear(2, 2).state_dict()
        model.extra = torch.ones(3)
        model.note = "kept"
        torch.save({"m": model, "z": torch.zeros(9)}, self.path)
        sherd.rewrite_checkpoint(self.path, self.path + "-files.pt")
        sherd.rewrite_checkpoint(self.path, self.path + "-dcp")
        sherd.rewrite_checkpoint(self.path + "-dcp", self.path + "-back.pt")
        for ending in ("-files.pt", "-back.pt"):
            back = torch.load(self.path + ending, weights_only=False)["m"]
            self.assertFalse(hasattr(back, "extra"), ending)
            self.assertEqual((back.note, back._metadata), ("kept", model._metadata), ending)

    def test_a_view_whose_base_is_left_out(self) -> None:
        whole = numbers((6, 5))
        torch.save({"whole": whole, "a": whole[1:3], "b": whole[2:5], "c": whole[:, 1]}, self.path)
        sherd.rewrite_checkpoint(self.path, self.path + ".pt", drop=["whole"])
        back = torch.load(self.path + ".pt", weights_only=True)
        self.assertEqual(list(back), ["a", "b", "c"])
        self.assertTrue(back["a"].equal(whole[1:3]) and back["b"].equal(whole[2:5]) and back["c"].equal(whole[:, 1]))
        self.assertEqual(back["a"].untyped_storage().nbytes(), 4 * 5 * 4)
        self.assertEqual(back["c"].untyped_storage().nbytes(), 6 * 4)

    def test_keys_that_names_cannot_keep(self) -> None:
        state = {
            "rates": {0.5: "a", True: "b", None: "c", (1, "x"): "d", b"y": 2**70, "deep": {1.5: [1, {2.5: None}]}},
            "w": numbers((2,)),
        }
        torch.save(state, self.path)
        sherd.rewrite_checkpoint(self.path, self.path + "1.pt")
        sherd.rewrite_checkpoint(self.path, self.path + "2")
        sherd.rewrite_checkpoint(self.path + "2", self.path + "2.pt")
        sherd.rewrite_checkpoint(self.path, self.path + "3.safetensors")
        sherd.rewrite_checkpoint(self.path + "3.safetensors", self.path + "3.pt")
        sherd.save(sherd.load_state_dict(self.path), self.path + "4.pt")
        for number in range(1, 5):
            back = torch.load(f"{self.path}{number}.pt", weights_only=False)
            self.assertEqual(repr(back["rates"]), repr(state["rates"]), number)
            self.assertTrue(back["w"].equal(state["w"]))

    def test_random_values_keep_their_kinds(self) -> None:
        import math
        import random

        draw = random.Random(3)
        plain = [None, True, False, 0, 1, -1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**200, -(2**200)]
        plain += [0.0, -0.0, 1e308, 5e-324, math.inf, -math.inf, math.nan, "", "ünï", "a\n'\"\\", "\0", b"", b"\x00\xff", bytearray(b"q")]
        plain += [1 + 2j, complex(-0.0, math.nan), set(), frozenset(), {1, "a"}, frozenset([(1, 2)]), torch.Size([2, 3])]

        def value(depth: int) -> Any:
            kind = draw.randrange(8) if depth else 0
            if kind < 4:
                return draw.choice(plain)
            items = [value(depth - 1) for _ in range(draw.randrange(4))]
            if kind == 4:
                return items
            if kind == 5:
                return tuple(items)
            keys = draw.sample(["a", "b.c", "", 0, 1, 2, 7, -1, 1.5, (1,), b"k"], len(items))
            made = dict(zip(keys, items))
            return made if kind == 6 else collections.OrderedDict(made)

        def told(value: Any, in_order: bool = True) -> str:
            if isinstance(value, (set, frozenset)):
                return f"{type(value).__name__} {sorted(map(repr, value))}"
            if isinstance(value, dict):
                items = [(repr(key), told(item, in_order)) for key, item in value.items()]
                return f"{type(value).__name__} {items if in_order else sorted(items)}"
            if isinstance(value, (list, tuple)):
                return f"{type(value).__name__} {[told(item, in_order) for item in value]}"
            return f"{type(value).__name__} {value!r}"

        for trial in range(200):
            state = {f"value{i}": value(4) for i in range(4)}
            torch.save(state, self.path)
            expected = {key: told(item) for key, item in state.items()}
            roads: list[list[str]] = [[".pt"], ["-dcp", ".pt"], [".safetensors", ".pt"]]
            try:
                sherd.load_state_dict(self.path)
            except ValueError as error:
                self.assertIn("two values have one name", str(error))  # "b.c" and "b" above "c"
                continue
            for number, road in enumerate(roads):
                source = self.path
                for step in road:
                    target = f"{self.path}-{number}{step}"
                    sherd.rewrite_checkpoint(source, target, overwrite=True)
                    source = target
                back = torch.load(source, weights_only=False)
                for key, text in expected.items():
                    found = told(back[key])
                    if number == 2:  # safetensors have the kind of dicts in objects alone
                        found, text = (each.replace("OrderedDict", "dict") for each in (found, text))
                    self.assertEqual(found, text, f"trial {trial}, {road}")
            # And what sherd made of it, saved by sherd: opaque ones come back as they were.
            sherd.save(sherd.load_state_dict(self.path), self.path + ".again.pt")
            back = torch.load(self.path + ".again.pt", weights_only=False)
            for key in expected:
                found, text = told(back[key], in_order=False), told(state[key], in_order=False)  # of {1: ..., 0: ...}
                for kind, other in (("OrderedDict", "dict"), ("Size", "tuple")):  # sherd's states have the one alone
                    found, text = found.replace(kind, other), text.replace(kind, other)
                self.assertEqual(found, text)

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

    def test_damage_in_channels_last(self) -> None:
        """torch keeps the order of the elements, also in distributed checkpoints."""
        image = numbers((2, 3, 4, 5)).to(memory_format=torch.channels_last)
        state = {"transposed": numbers((300, 200)).t(), "image": image}
        torch.save(state, self.path)
        dcp.save(state, checkpoint_id=self.path + "-dcp", no_dist=True)

        def reads(path: str) -> list[Callable[[], Any]]:
            return [
                lambda: sherd.load(emptied(state), path),
                lambda: sherd.load_state_dict(path),
                lambda: sherd.rewrite_checkpoint(path, self.path + "-2.pt"),
                lambda: sherd.rewrite_checkpoint(path, self.path + "-2"),
            ]

        for path in (self.path, self.path + "-dcp"):
            file = Path(path if path == self.path else path + "/__0_0.distcp")
            self.assert_same(state, sherd.load_state_dict(path))
            original = file.read_bytes()
            for tensor in (state["transposed"].t(), image.permute(0, 2, 3, 1)):
                self.assertTrue(tensor.is_contiguous())
                at = original.find(tensor.numpy().tobytes())
                self.assertGreater(at, 0)
                for place in (at, at + 101, at + tensor.nbytes - 1):
                    damaged = bytearray(original)
                    damaged[place] ^= 1
                    file.write_bytes(damaged)
                    for read in reads(path):
                        with self.assertRaises(RuntimeError) as caught:
                            read()
                        self.assertIn("CRC found", str(caught.exception))
            file.write_bytes(original)

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

    def test_fields_of_other_releases(self) -> None:
        import pickle
        import sys
        import types

        from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

        # Python 3.13 pickles paths under this name.
        local = types.ModuleType("pathlib._local")
        local.PosixPath = type("PosixPath", (), {"__reduce__": lambda self: (type(self), ("/", "a"))})  # type: ignore[attr-defined]
        local.PosixPath.__module__ = "pathlib._local"
        state = {"w": numbers((2, 3)), "n": 5}
        dcp.save(state, checkpoint_id=self.path, no_dist=True)
        file = Path(self.path, ".metadata")
        original = file.read_bytes()
        for case in ("properties", "path", "fewer", "more"):
            metadata = pickle.loads(original)
            sys.modules["pathlib._local"] = local
            try:
                if case == "properties":  # with MEM_FORMAT_ENCODING
                    metadata.state_dict_metadata["w"].properties = TensorProperties(dtype=torch.float32)
                elif case == "path":
                    metadata.storage_meta.checkpoint_id = local.PosixPath()
                elif case == "fewer":
                    del metadata.__dict__["storage_meta"]
                    metadata.__dict__.pop("version", None)
                    for info in metadata.storage_data.values():
                        info.__dict__.pop("transform_descriptors", None)
                else:
                    metadata.later = {"than": ["this", 1]}
                    metadata.storage_meta.later = 2
                written = pickle.dumps(metadata)
            finally:
                del sys.modules["pathlib._local"]
            self.assertIn({"properties": b"MEM_FORMAT_ENCODING", "path": b"pathlib._local"}.get(case, b""), written)
            file.write_bytes(written)
            self.assert_same(state, sherd.load_state_dict(self.path))
            loaded = emptied(state)
            sherd.load(loaded, self.path)
            self.assert_same(state, loaded)

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

    def test_one_bit_anywhere_in_an_index(self) -> None:
        state = {f"layer{i}": numbers((10, i + 1)) for i in range(4)}
        sherd.save(state, self.path + ".pt")
        sherd.rewrite_checkpoint(self.path + ".pt", self.path, format="safetensors", file_bytes=200)
        index = Path(self.path, "model.safetensors.index.json")
        original = index.read_bytes()
        self.assertEqual(set(json.loads(original)["weight_map"]), set(state))
        for place in range(len(original)):
            damaged = bytearray(original)
            damaged[place] ^= 1 << place % 8
            index.write_bytes(damaged)
            with self.assertRaises((RuntimeError, ValueError)) as caught:
                sherd.load(emptied(state), self.path)
            self.assertIn(str(index), str(caught.exception))
        # Another program may write it anew, and keep what it does not know.
        index.write_text(json.dumps({**json.loads(original), "more": 1}))
        self.assertTrue(same(state, sherd.load_state_dict(self.path)))
        loaded = emptied(state)
        index.write_bytes(original)
        dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(self.path), no_dist=True)
        self.assertTrue(same(state, loaded))

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
