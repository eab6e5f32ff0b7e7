"""convert, reshard, merge, rename and repair: what they write, torch reads; what torch wrote, they read."""

from __future__ import annotations

import json
import pathlib
import re
import resource
import signal
import struct
import subprocess
import time
import unittest
import warnings
from typing import Any

import checkpoints
import torch
from checkpoints import copied, flat, full_state, has_package, json_of, run
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

SOURCES = [*(f"torch-{n}" for n in (1, 2, 3, 4)), "sherd-3", "state.pt"]
# safetensors has no name for these.
NOT_IN_SAFETENSORS = ["dtypes.complex32", "dtypes.complex128"]


def at(name: str) -> pathlib.Path:
    return checkpoints.FOLDER / name


class WritingTest(unittest.TestCase):
    def assert_same(self, found: Any, expected: Any, name: str = "") -> None:
        if isinstance(expected, torch.Tensor):
            self.assertEqual(found.dtype, expected.dtype, name)
            self.assertEqual(found.shape, expected.shape, name)
            if expected.numel() > 0:
                same = torch.equal(found.contiguous().reshape(-1).view(torch.uint8), expected.contiguous().reshape(-1).view(torch.uint8))
                self.assertTrue(same, name)
        elif isinstance(expected, dict):
            self.assertEqual(set(found), set(expected), name)
            for key, value in expected.items():
                self.assert_same(found[key], value, f"{name}.{key}")
        elif isinstance(expected, (list, tuple)):
            self.assertIs(type(found), type(expected), name)
            self.assertEqual(len(found), len(expected), name)
            for i, value in enumerate(expected):
                self.assert_same(found[i], value, f"{name}.{i}")
        else:
            self.assertEqual(found, expected, name)
            self.assertIs(type(found), type(expected), name)

    def assert_torch_reads(self, path: pathlib.Path, expected: Any) -> None:
        if path.suffix == ".pt":
            self.assert_same(torch.load(path, weights_only=True), expected)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assert_same(_load_state_dict_from_keys(checkpoint_id=str(path)), expected)

    def test_every_format_from_every_checkpoint(self) -> None:
        for source in SOURCES:
            for target in ("out.pt", "out"):
                with self.subTest(source=source, target=target):
                    result = json_of("convert", source, target, "--force")
                    self.assertEqual(result["tensors"], sum(isinstance(v, torch.Tensor) for v in flat(full_state()).values()))
                    self.assert_torch_reads(at(target), full_state())
                    run("verify", target, code=0)
                    run("diff", source, target, code=0)

    def test_safetensors_both_ways(self) -> None:
        words = [word for name in NOT_IN_SAFETENSORS for word in ("--drop", name)]
        expected = full_state()
        for name in NOT_IN_SAFETENSORS:
            del expected["dtypes"][name.removeprefix("dtypes.")]
        for source in SOURCES:
            with self.subTest(source=source):
                result = json_of("convert", source, "out.safetensors", "--force", *words)
                self.assertIn("step", result["objects_as_json"])
                # Nesting and objects come back.
                run("convert", "out.safetensors", "back.pt", "--force", code=0)
                self.assert_torch_reads(at("back.pt"), expected)
                run("convert", source, "many", "--force", "--format", "safetensors", "--max-file-size", "500B", *words, code=0)
                self.assertTrue(at("many/model.safetensors.index.json").exists())
                run("convert", "many", "back", "--force", code=0)
                self.assert_torch_reads(at("back"), expected)
        error = run("convert", "state.pt", "x.safetensors", code=2).stderr
        self.assertIn("convert: safetensors cannot hold tensors of this dtype\n  tensor: dtypes.complex32", error)
        self.assertFalse(at("x.safetensors").exists())

    def test_the_safetensors_library_reads_it(self) -> None:
        try:
            from safetensors.torch import load_file, save_file
        except ImportError:
            self.skipTest("the package safetensors is not installed")
        run("convert", "torch-3", "out.safetensors", "--force", "--only", "model.*", code=0)
        expected = {name: value for name, value in flat(full_state()).items() if name.startswith("model.")}
        self.assert_same(load_file(at("out.safetensors")), expected)
        save_file({name: value.contiguous() for name, value in expected.items()}, at("theirs.safetensors"))
        run("diff", "theirs.safetensors", "out.safetensors", code=0)

    def test_reshard(self) -> None:
        for source in SOURCES:
            for ranks in (1, 2, 3, 5):
                with self.subTest(source=source, ranks=ranks):
                    run("reshard", source, "out", "--ranks", ranks, "--force", code=0)
                    self.assertEqual(len(list(at("out").glob("*.distcp"))), ranks)
                    self.assert_torch_reads(at("out"), full_state())
        run("reshard", "torch-2", "out", "--mesh", "[dp=2, tp=3]", "--placements", "model.*=(R, S(1))",
            "--placements", "(S(0), R)", "--force", code=0)  # fmt: skip
        self.assert_torch_reads(at("out"), full_state())
        boxes = {tensor["name"]: len(tensor["chunks"]) for tensor in json_of("inspect", "out")["tensors"]}
        self.assertEqual(boxes["model.rows"], 3)
        self.assertEqual(boxes["dtypes.float32"], 2)
        self.assertEqual(boxes["model.scalar"], 1)

    def test_merge_and_rename(self) -> None:
        run("rename", "torch-3", "net", "model.*=net.*", "*.scalar=*.number", "--force", code=0)
        expected = full_state()
        expected["net"] = expected.pop("model")
        expected["net"]["number"] = expected["net"].pop("scalar")
        self.assert_torch_reads(at("net"), expected)
        torch.save({"extra": {"w": torch.arange(5.0)}}, at("extra.pt"))
        run("merge", "net", "extra.pt", "both.pt", "--force", code=0)
        expected["extra"] = {"w": torch.arange(5.0)}
        self.assert_torch_reads(at("both.pt"), expected)
        error = run("merge", "torch-1", "torch-2", "x", code=2).stderr
        self.assertIn("merge: two entries have one name", error)

    def test_repair_keeps_what_is_whole(self) -> None:
        for source in ("torch-2", "sherd-2"):
            with self.subTest(source=source):
                broken = copied(source, "broken")
                file = next(iter(sorted(broken.glob("__1_*.distcp"))))
                content = bytearray(file.read_bytes())
                content[len(content) // 2] ^= 16
                file.write_bytes(content[: -len(content) // 8])
                run("verify", "broken", code=1)
                error = run("convert", "broken", "x", code=1).stderr
                self.assertIn("convert: ", error)
                self.assertFalse(at("x").exists())
                result = json_of("repair", "broken", "whole", "--force", code=1)
                self.assertTrue(result["damaged"])
                run("verify", "whole", code=0)
                left_out = {damaged["name"] for damaged in result["damaged"]}
                kept = {tensor["name"] for tensor in json_of("inspect", "whole")["tensors"]}
                tensors = {name for name, value in flat(full_state()).items() if isinstance(value, torch.Tensor)}
                self.assertEqual(kept | (left_out & tensors), tensors)
                self.assertFalse(kept & left_out)
                only = [word for name in sorted(kept) for word in ("--filter", name)]
                run("diff", "whole", source, *only, code=0)

    def test_repair_of_one_file_leaves_out_what_is_damaged_alone(self) -> None:
        torch.save({"a": torch.arange(50.0), "b": torch.arange(60.0)}, at("two.pt"))
        run("convert", "two.pt", "own.pt", "--force", code=0)  # with digests, all in one block
        content = bytearray(at("own.pt").read_bytes())
        content[content.find(torch.arange(60.0).numpy().tobytes()) + 5] ^= 4
        at("own.pt").write_bytes(content)
        run("verify", "own.pt", code=1)
        run("convert", "own.pt", "x.pt", code=1)
        result = json_of("repair", "own.pt", "kept.pt", "--force", code=1)
        self.assertEqual([damaged["name"] for damaged in result["damaged"]], ["b"])
        self.assert_torch_reads(at("kept.pt"), {"a": torch.arange(50.0)})

    def test_incremental_ones_become_self_contained(self) -> None:
        if not has_package():
            self.skipTest("the Python package is not built")
        run("convert", "run/step-2", "alone", "--force", code=0)
        state = {"big": torch.arange(3 * 2**18, dtype=torch.int32), "step": 2}
        state["big"][2**18 + 5] = -1
        self.assert_torch_reads(at("alone"), state)

    def test_a_damaged_byte_is_found_on_the_way(self) -> None:
        for source in ("torch-1", "torch-3", "state.pt", "sherd-3"):
            broken = copied(source, "flipped.pt" if source.endswith(".pt") else "flipped")
            files = [broken] if broken.is_file() else sorted(broken.glob("*.distcp"))
            # In the elements of a tensor.
            needle = full_state()["model"]["rows"][0].numpy().tobytes()
            found = []
            for file in files:
                content = bytearray(file.read_bytes())
                place = content.find(needle)
                if place < 0:
                    continue
                found.append((file, place + 3))
                content[place + 3] ^= 1
                file.write_bytes(content)
            self.assertEqual(len(found), 1, source)
            damaged, byte = found[0]
            for words in (["convert", broken, "x.pt"], ["convert", broken, "x"], ["reshard", broken, "x", "--ranks", 2]):
                with self.subTest(source=source, words=words):
                    error = run(*words, code=1).stderr
                    self.assertIn("a file is damaged: its bytes are not those that were saved", error)
                    self.assertIn(f"file: {damaged}\n", error)
                    bytes_read = re.search(r"bytes: (\d+) to (\d+)\n", error)
                    assert bytes_read is not None, error
                    self.assertTrue(int(bytes_read[1]) <= byte < int(bytes_read[2]), f"byte {byte}\n{error}")
                    # A digest is of a whole block: whoever reads it first is named.
                    self.assertIn("reading: " if source == "sherd-3" else "reading: tensor model.rows\n", error)
                    self.assertFalse(at("x").exists() or at("x.pt").exists())

    def test_memory_does_not_grow_with_the_checkpoint(self) -> None:
        # 600 MiB of zeros that take no room on the disk, and a process that may have 256 MiB.
        header = json.dumps({f"w{i}": {"dtype": "F32", "shape": [1024, 1024 * 30], "data_offsets": [i * 120 << 20, (i + 1) * 120 << 20]} for i in range(5)})
        header += " " * (-len(header) % 8)
        with at("large.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header.encode())
            file.truncate(8 + len(header) + (600 << 20))

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))

        for words in (["convert", "large.safetensors", "large"], ["reshard", "large", "large-3", "--mesh", "[3]", "--placements", "(S(1))"]):
            result = subprocess.run([checkpoints.SHERD, *words], cwd=checkpoints.FOLDER, preexec_fn=limit, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json_of("inspect", "large-3")["tensor_bytes"], 600 << 20)
        for name in ("large", "large-3"):
            subprocess.run(["rm", "-r", at(name)], check=True)

    def test_a_full_disk_leaves_nothing(self) -> None:
        source = at("wide.pt")
        torch.save({"w": torch.arange(1 << 20, dtype=torch.float32)}, source)  # 4 MiB
        small = at("small-disk")
        small.mkdir()
        inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        mount = f"mount -t tmpfs -o size=1m tmpfs {small}"
        if subprocess.run([*inside, mount], capture_output=True, check=False).returncode != 0:
            self.skipTest("no disk can be mounted here")
        for target in ("copy", "copy.pt", "copy.safetensors"):
            script = f"{mount} && cd {small} && {checkpoints.SHERD} convert {source} {target}; echo exit $?; ls -A"
            result = subprocess.run([*inside, script], capture_output=True, text=True, check=False)
            self.assertEqual(result.stdout, "exit 2\n", f"{target}: {result.stdout}{result.stderr}")
            self.assertIn("no space left on device", result.stderr)
            self.assertIn(target, result.stderr)

    def test_bad_input(self) -> None:
        run("convert", "state.pt", "there.pt", "--force", code=0)
        at("folder").mkdir(exist_ok=True)
        at("noise").write_bytes(b"\x01\x02 no checkpoint at all")
        cases = [
            (["convert", "nothing", "x"], 2, "convert: there is no checkpoint at this path"),
            (["convert", "folder", "x"], 2, "convert: there is no checkpoint at this path"),
            (["convert", "noise", "x"], 2, "convert: the file is of no format that is known"),
            (["convert", "state.pt", "there.pt"], 2, "convert: there is something at the target already"),
            (["convert", "torch-1", "torch-1/x"], 2, "convert: the target lies in the source, or the source in it"),
            (["convert", "state.pt", "x", "--only", "nothing.*"], 2, "convert: a pattern matches no entry"),
            (["convert", "state.pt", "x", "--format", "zip"], 2, "convert: no such format"),
            (["convert", "state.pt", "x", "--max-file-size", "many"], 2, "convert: this is no number of bytes"),
            (["convert", "state.pt", "no/such/place.pt", "--drop", "*"], 2, "convert: nothing is left to write"),
            (["rename", "state.pt", "x", "nonsense"], 2, "rename: a renaming has the form OLD=NEW"),
            (["rename", "state.pt", "x", "step=model.*"], 2, "rename: the new name has more stars than the old one"),
            (["reshard", "state.pt", "x"], 2, "reshard: either --ranks, or --mesh with --placements"),
            (["reshard", "state.pt", "x", "--ranks", "0"], 2, "reshard: either --ranks, or --mesh with --placements"),
            (["reshard", "state.pt", "x", "--ranks", "-1"], 2, "reshard: the number of ranks is less than one"),
            (["reshard", "state.pt", "x", "--mesh", "[2]", "--placements", "(S(0), R)"], 2, "reshard:"),
            (["merge", "state.pt", "x"], 2, "merge:"),
        ]
        for words, code, text in cases:
            with self.subTest(words=words):
                error = run(*words, code=code).stderr
                self.assertTrue(error.startswith(text), error)
                self.assertFalse(at("x").exists())
        full = pathlib.Path("/dev/full")
        if full.exists():
            self.assertEqual(run("convert", "state.pt", "/dev/full/x").returncode, 2)

    def test_ctrl_c_leaves_nothing(self) -> None:
        header = json.dumps({"w": {"dtype": "U8", "shape": [8 << 30], "data_offsets": [0, 8 << 30]}})
        header += " " * (-len(header) % 8)
        with at("huge.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header.encode())
            file.truncate(8 + len(header) + (8 << 30))
        process = subprocess.Popen([checkpoints.SHERD, "convert", "huge.safetensors", "stopped"], cwd=checkpoints.FOLDER, stderr=subprocess.PIPE, text=True)
        for _ in range(1000):
            if list(checkpoints.FOLDER.glob("stopped.tmp-*/*")):
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(list(checkpoints.FOLDER.glob("stopped*")), [])
