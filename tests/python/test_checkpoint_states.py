"""What states may hold, and what a save of them takes: tensors without memory, values that unfold, writers of torch, peaks."""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from test_checkpoint import emptied, numbers, same

import sherd


class TestOfStates(unittest.TestCase):
    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "ck")


class WithoutMemoryTest(TestOfStates):
    """Tensors whose elements are elsewhere were read at address 0."""

    def assert_refused(self, tensor: torch.Tensor) -> None:
        sherd.save({"x": torch.zeros(tensor.shape)}, self.path)

        def calls(rank: int) -> list[str]:
            found = []
            for state in ({"x": tensor}, {"x": (1, tensor)}, {"x": tensor if rank == 1 else torch.zeros(tensor.shape)}):
                for save in (sherd.save, lambda *arguments: sherd.save_async(*arguments).wait()):
                    with self.assertRaises(ValueError) as caught:
                        save(state, self.path + "2")
                    self.assertIn("key: x", str(caught.exception))
                    found.append(str(caught.exception))
            with self.assertRaises(ValueError) as fault:
                sherd.load({"x": tensor}, self.path)
            return [*found, str(fault.exception)]

        for texts in sherd.spawn(2, calls):
            for text in texts:
                self.assertIn("the tensor has no memory of its own", text)
                self.assertIn("help: sherd.from_torch(tensor) where it is a DTensor of torch.distributed", text)
        self.assertFalse(os.path.exists(self.path + "2"))

    def test_fake_tensors(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(3)
        self.assert_refused(fake)

    def test_tensors_that_wrap_others(self) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        self.assert_refused(TwoTensor(torch.ones(3), torch.zeros(3)))

    def test_dtensors_of_torch(self) -> None:
        from torch.distributed.tensor import DTensor, Shard, init_device_mesh

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            mesh = init_device_mesh("cpu", (1,))
            self.assert_refused(DTensor.from_local(torch.ones(3), mesh, [Shard(0)]))
        finally:
            dist.destroy_process_group()

    def test_subclasses_that_have_memory(self) -> None:
        class Named(torch.Tensor):
            pass

        for tensor in (torch.ones(3).as_subclass(Named), torch.nn.Parameter(torch.ones(3)), torch.zeros(0)):
            sherd.save({"x": tensor, "in": (tensor, 1)}, self.path)
            loaded = sherd.load_state_dict(self.path)
            self.assertTrue(torch.equal(loaded["x"], torch.ones(tensor.shape)))
            self.assertTrue(torch.equal(loaded["in"][0], torch.ones(tensor.shape)))
            state = {"x": torch.zeros(tensor.shape).as_subclass(Named)}
            sherd.load(state, self.path)
            self.assertTrue(state["x"].as_subclass(torch.Tensor).equal(torch.ones(tensor.shape)))


class UnfoldingTest(TestOfStates):
    """x = (x, x), many times: a kilobyte that would fill any memory."""

    def test_a_value_that_unfolds_too_far(self) -> None:
        makers: dict[str, Any] = {
            "tuple": lambda x: (x, x),
            "list": lambda x: [x, x],
            "dict": lambda x: {"a": x, "b": x},
            "ordered": lambda x: collections.OrderedDict(a=x, b=x),
        }
        for name, make in makers.items():
            with self.subTest(name):
                value: Any = (1, 2)
                for _ in range(40):
                    value = make(value)
                torch.save({"o": (value,)}, self.path + ".pt")
                with self.assertRaises(RuntimeError) as caught:
                    sherd.load_state_dict(self.path + ".pt")
                self.assertIn("load: the value unfolds into too many parts", str(caught.exception))

                def load(rank: int) -> str:
                    with self.assertRaises(RuntimeError) as caught:
                        sherd.load({"o": None}, self.path + ".pt")
                    return str(caught.exception)

                for text in sherd.spawn(2, load):
                    self.assertIn("the value unfolds into too many parts", text)
                # From file to file it stays what it is.
                for to in ("2.safetensors", "3", "4.pt"):
                    sherd.rewrite_checkpoint(self.path + ".pt", self.path + to, overwrite=True)
                for source in ("2.safetensors", "3"):
                    sherd.rewrite_checkpoint(self.path + source, self.path + "5.pt", overwrite=True)
                    back = torch.load(self.path + "5.pt")["o"][0]
                    first, second = back.values() if isinstance(back, dict) else back
                    self.assertIs(first, second)

    def test_an_object_that_is_not_known_is_kept(self) -> None:
        value: Any = (1, 3 + 1j)
        for _ in range(40):
            value = (value, value)
        torch.save({"o": (value,)}, self.path + ".pt")
        ((first, second),) = sherd.load_state_dict(self.path + ".pt")["o"]
        self.assertIs(first, second)

    def test_what_stands_several_times_in_moderation(self) -> None:
        shared = tuple(range(1000))
        torch.save({"o": ([shared] * 100, shared)}, self.path + ".pt")
        self.assertEqual(sherd.load_state_dict(self.path + ".pt")["o"], ([shared] * 100, shared))


class LackingTest(TestOfStates):
    def test_objects_that_the_checkpoint_lacks_stay(self) -> None:
        sherd.save({"w": torch.ones(2), "list": [torch.ones(2)]}, self.path)
        sherd.CheckpointManager(self.path + "s").save(1, {"w": torch.ones(2)})

        def made() -> dict[str, Any]:
            return {"w": torch.zeros(2), "first": argparse.Namespace(lr=1), "second": argparse.Namespace(lr=1),
                    "list": [torch.zeros(2), argparse.Namespace(lr=1)], "tuple": (argparse.Namespace(lr=1), 2)}  # fmt: skip

        for load in (
            lambda state: sherd.load(state, self.path, strict=False),
            lambda state: sherd.CheckpointManager(self.path + "s").load_latest(state, strict=False),
        ):
            state = made()
            before = [state["first"], state["second"], state["list"][1], state["tuple"]]
            load(state)
            self.assertTrue(state["w"].equal(torch.ones(2)))
            for value, kept in zip((state["first"], state["second"], state["list"][1], state["tuple"]), before, strict=True):
                self.assertIs(value, kept)


class OfTorchTest(TestOfStates):
    def test_a_fresh_optimizer_takes_what_is_stored(self) -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        for ending in ("", ".pt", ".safetensors"):
            sherd.save({"m": model, "o": optimizer}, self.path + ending)
            other = torch.nn.Linear(2, 2)
            fresh = torch.optim.AdamW(other.parameters(), lr=0.5)
            result = sherd.load({"m": other, "o": fresh}, self.path + ending)
            self.assertEqual((result.missing, result.unexpected), ([], []))
            self.assertTrue(same(optimizer.state_dict(), fresh.state_dict()))

    def test_what_its_writers_write(self) -> None:
        from torch.distributed.checkpoint.format_utils import torch_save_to_dcp

        state = {"model": {"w": numbers((4, 6)), "n": numbers((3,), torch.int64)}, "step": 7, "list": [numbers((2,)), "x"]}
        torch.save(state, self.path + ".pt")
        torch_save_to_dcp(self.path + ".pt", self.path)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            dcp.async_save(state, checkpoint_id=self.path + "2").result()
        finally:
            dist.destroy_process_group()
        for path in (self.path, self.path + "2"):
            self.assertTrue(same(state, sherd.load_state_dict(path)), path)
            loaded = emptied(state)
            self.assertEqual(sherd.load(loaded, path).unexpected, [])
            self.assertTrue(same(state, loaded), path)
            self.assertEqual(sherd.verify_checkpoint(path).damage, [])

    def test_kinds_of_dicts_through_every_format(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict()
        torch.save({"model": model, "by": {0: torch.ones(1), 1: torch.zeros(1)}, "z": 1, "a": torch.ones(2)}, self.path + ".pt")
        for ending in ("2", "3.safetensors"):
            for rename in ({}, {"model.*": "net.*", "by.*": "of.*"}):
                sherd.rewrite_checkpoint(self.path + ".pt", self.path + ending, rename=rename, overwrite=True)
                sherd.rewrite_checkpoint(self.path + ending, self.path + "4.pt", overwrite=True)
                back = torch.load(self.path + "4.pt")
                self.assertEqual(list(back), ["net", "of", "z", "a"] if rename else ["model", "by", "z", "a"])
                found = back["net" if rename else "model"]
                self.assertIs(type(found), collections.OrderedDict)
                self.assertEqual(found._metadata, model._metadata)
                self.assertEqual(list(back["of" if rename else "by"]), [0, 1])

    def test_nothing_is_a_state_too(self) -> None:
        for ending in ("", ".pt", ".safetensors"):
            sherd.spawn(2, lambda rank, to=self.path + ending: sherd.save({}, to))
            self.assertEqual(sherd.load_state_dict(self.path + ending), {})


class DamagedMetadataTest(TestOfStates):
    def test_an_object_that_lies_nowhere(self) -> None:
        from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

        import pickle

        os.makedirs(self.path)
        metadata = Metadata(state_dict_metadata={"s": BytesStorageMetadata()}, planner_data={"s": ("s",)}, storage_data={})
        with open(os.path.join(self.path, ".metadata"), "wb") as file:
            pickle.dump(metadata, file)
        (found,) = sherd.inspect_checkpoint(self.path).objects
        self.assertIn("the metadata do not say where an item lies", found.text)

    def test_short_files_do_not_fill_the_memory(self) -> None:
        from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

        import pickle

        os.makedirs(self.path)
        size = 4000
        path = (0,) * 1000

        def refused(**fields: Any) -> str:
            metadata = Metadata(state_dict_metadata={"s": BytesStorageMetadata()}, planner_data={"s": ("s",)}, storage_data={})
            for name, value in fields.items():
                setattr(metadata, name, value)
            with open(os.path.join(self.path, ".metadata"), "wb") as file:
                pickle.dump(metadata, file, protocol=4)
            begin = time.monotonic()
            with self.assertRaises(RuntimeError) as caught:
                sherd.load_state_dict(self.path)
            self.assertLess(time.monotonic() - begin, 30)
            return str(caught.exception)

        for fields in (
            {"sherd_dicts": [path] * size},
            {"sherd_ordered": [(path, None)] * size},
            {"sherd_shared": [[("x" * 100_000, 0, (1,))] * size]},
            {"planner_data": {str(i): path for i in range(size)}},
        ):
            self.assertIn("the values would need much more memory than the pickle has bytes", refused(**fields))
        # Whoever makes a state of it goes that deep.
        self.assertIn("a path in the state has 50000 parts, more than 1000", refused(planner_data={"s": (0,) * 50000}))


class MemoryTest(TestOfStates):
    """What a save takes beside the state."""

    def peak_of(self, options: str, ending: str = "") -> int:
        """MiB beyond what the program had before, in a process of its own, whose peak nobody else has moved."""
        program = f"""
            import resource, torch, sherd
            state = {{"w": torch.rand(64 << 20), "rows": torch.rand(4096, 2048).t(), "step": 1}}  # 256 MiB and 32
            sherd.save({{"w": torch.rand(1 << 20)}}, {self.path + "-first" + ending!r})  # what is made once is there
            sherd.save(state, {self.path + "-base"!r}) if {"base" in options} else None
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            sherd.save(state, {self.path + ending!r}{options})
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300, capture_output=True)
        return int(done.stdout)

    @unittest.skipUnless(sys.platform == "linux", "ru_maxrss counts KiB there")
    def test_of_a_save_is_that_of_its_buffers(self) -> None:
        for options, ending in (("", ""), (f", base={self.path + '-base'!r}", ""), ("", ".pt"), ("", ".safetensors")):
            with self.subTest(options=options, ending=ending):
                self.assertLess(self.peak_of(options, ending), 64)


if __name__ == "__main__":
    unittest.main()
