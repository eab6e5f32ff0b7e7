"""inspect, cat, extract, diff and verify, on checkpoints of PyTorch's (1 to 4 ranks) and of sherd's, against torch."""

from __future__ import annotations

import json
import math
import pathlib
import random
import unittest
from typing import Any

import checkpoints
import numpy
import torch
from checkpoints import copied, flat, full_state, has_package, json_of, run

ALL = [*(f"torch-{n}" for n in (1, 2, 3, 4)), *(f"sherd-{n}" for n in (1, 2, 3, 4)), "state.pt"]
TEXT_OF = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "complex32": "c32",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def text_of(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return TEXT_OF.get(name, name.replace("float8", "f8"))


def values_of(tensor: torch.Tensor) -> Any:
    """As --json prints them."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(item) for item in value]
        if isinstance(value, complex):
            return [one(value.real), one(value.imag)]
        if isinstance(value, float) and not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return value

    if tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64)
    if tensor.is_floating_point():
        tensor = tensor.double()
    return one(tensor.tolist())


class ReadingTest(unittest.TestCase):
    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in flat(full_state()).items() if isinstance(value, torch.Tensor)}

    def test_inspect_names_every_tensor_with_chunks_that_tile_it(self) -> None:
        for name in ALL:
            with self.subTest(checkpoint=name):
                info = json_of("inspect", name)
                found = {tensor["name"]: tensor for tensor in info["tensors"]}
                expected = self.tensors()
                self.assertEqual(sorted(found), sorted(expected))
                files = {file["name"] for file in info["files"]}
                for key, tensor in expected.items():
                    self.assertEqual(found[key]["dtype"], text_of(tensor.dtype), key)
                    self.assertEqual(found[key]["size"], list(tensor.shape), key)
                    self.assertEqual(found[key]["bytes"], tensor.numel() * tensor.itemsize, key)
                    covered = torch.zeros(tensor.shape, dtype=torch.int32)
                    for chunk in found[key]["chunks"]:
                        place = tuple(slice(o, o + s) for o, s in zip(chunk["offsets"], chunk["sizes"], strict=True))
                        covered[place] += 1
                        self.assertIn(chunk["file"], files)
                    self.assertTrue((covered == 1).all(), key)
                self.assertTrue(all(file["there"] for file in info["files"]))
                self.assertEqual(info["tensor_bytes"], sum(t.numel() * t.itemsize for t in expected.values()))

    def test_inspect_shows_objects_as_python_prints_them(self) -> None:
        for name in ALL:
            info = json_of("inspect", name)
            texts = {one["name"]: one["text"] for one in info["objects"]}
            self.assertEqual(texts["step"], "100")
            self.assertEqual(texts["optimizer.lr"], "0.1")
            self.assertEqual(texts["optimizer.betas"], "(0.9, 0.95)")
            self.assertEqual(texts["optimizer.on"], "True")

    def test_inspect_in_text(self) -> None:
        lines = run("inspect", "torch-3", "--filter", "model.[rt]*", code=0).stdout.splitlines()
        self.assertEqual(
            lines,
            [
                "torch-3  dcp, 3 tensors, 0 objects, 3 files, 344 B of elements",
                "",
                "model                 344 B  3 in all",
                "├─ rows    f32[7, 6]  168 B  3 chunks",
                "├─ table   f32[8, 4]  128 B  3 chunks",
                "└─ turned  f32[4, 3]   48 B",
            ],
        )
        table = run("inspect", "torch-2", "--table", "--filter", "model.rows", code=0).stdout.splitlines()
        self.assertEqual(table[2:], ["NAME        DTYPE  SIZE    BYTES  CHUNKS  FILE", "model.rows  f32    [7, 6]  168 B       2  __0_0.distcp, __1_0.distcp"])
        names = run("inspect", "sherd-2", "--names", code=0).stdout.split()
        self.assertEqual(sorted(names), sorted(flat(full_state())))

    def test_layers_that_are_alike_are_drawn_once(self) -> None:
        state = {f"layers.{i}.w": torch.zeros(2, 3) for i in range(12)} | {"layers.12.w": torch.zeros(4)}
        torch.save(state, checkpoints.FOLDER / "layers.pt")
        lines = run("inspect", "layers.pt", code=0).stdout.splitlines()[2:]
        self.assertEqual(
            lines, ["layers                 304 B  13 in all", "├─ 0..11.w  f32[2, 3]  288 B  12 in all", "└─ 12.w     f32[4]      16 B"]
        )
        self.assertEqual(len(run("inspect", "layers.pt", "--all", code=0).stdout.splitlines()), 16)

    def test_cat_prints_the_values(self) -> None:
        for name in ALL:
            for key, tensor in self.tensors().items():
                with self.subTest(checkpoint=name, tensor=key):
                    self.assertEqual(json_of("cat", name, key)["values"], values_of(tensor))

    def test_cat_every_value_of_the_small_floats(self) -> None:
        state = {}
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
            state[name] = torch.arange(256).to(torch.uint8).view(getattr(torch, name))
        state["float16"] = torch.arange(65536).to(torch.uint16).view(torch.float16)
        state["bfloat16"] = torch.arange(65536).to(torch.uint16).view(torch.bfloat16)
        torch.save(state, checkpoints.FOLDER / "floats.pt")
        for name, tensor in state.items():
            self.assertEqual(json_of("cat", "floats.pt", name)["values"], values_of(tensor), name)

    def test_cat_of_slices(self) -> None:
        grid = full_state()["model"]["grid"]
        for text, place in [
            ("0", (0,)), ("-1, 2", (-1, 2)), ("1:3", (slice(1, 3),)), ("..., 4", (..., 4)), (":, 1:, :-2", (slice(None), slice(1, None), slice(None, -2))),
            ("[5, 3, 4]", (5, 3, 4)), ("2:2", (slice(2, 2),)), ("4:99", (slice(4, 99),)),
        ]:  # fmt: skip
            for name in ("torch-3", "sherd-4", "state.pt"):
                self.assertEqual(json_of("cat", name, "model.grid", text)["values"], values_of(grid[place]), text)

    def test_cat_in_text(self) -> None:
        self.assertEqual(run("cat", "torch-4", "model.table", ":2", code=0).stdout, "[[0.5000, 1.3750, 2.2500, 3.1250],\n [4.0000, 4.8750, 5.7500, 6.6250]]\nf32[2, 4]\n")
        self.assertEqual(run("cat", "torch-4", "model.scalar", code=0).stdout, "2.5000\nf32[]\n")
        self.assertEqual(run("cat", "torch-4", "model.scalar", "--exact", code=0).stdout, "2.5\nf32[]\n")
        self.assertEqual(run("cat", "sherd-4", "optimizer.betas", code=0).stdout, "(0.9, 0.95)\n")
        self.assertEqual(json_of("cat", "torch-1", "optimizer.betas")["value"], {"$tuple": [0.9, 0.95]})
        long = checkpoints.FOLDER / "long.pt"
        torch.save({"x": torch.arange(4000.0).reshape(40, 100)}, long)
        lines = run("cat", long, "x", code=0).stdout.splitlines()
        self.assertEqual(lines[0], "[[   0.,    1.,    2., ...,   97.,   98.,   99.],")
        self.assertEqual(lines[3:], [" ...,", " [3700., 3701., 3702., ..., 3797., 3798., 3799.],", " [3800., 3801., 3802., ..., 3897., 3898., 3899.],", " [3900., 3901., 3902., ..., 3997., 3998., 3999.]]", "f32[40, 100]"])
        self.assertEqual(len(run("cat", long, "x", "--all", code=0).stdout.splitlines()), 41)

    def test_extract_writes_what_numpy_reads(self) -> None:
        target = checkpoints.FOLDER / "out.npy"
        for name in ("torch-3", "sherd-2", "state.pt"):
            for key, tensor in self.tensors().items():
                run("extract", name, key, "-o", target, "--force", code=0)
                array = numpy.load(target)
                self.assertEqual(array.shape, tuple(tensor.shape), key)
                self.assertEqual(array.tobytes(), tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"", key)
                if tensor.dtype not in (torch.complex32,):
                    run("extract", name, key, "-o", target, "--force", "--as", "f64", code=0)
                    expected = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                    self.assertTrue(numpy.array_equal(numpy.load(target), expected.numpy(), equal_nan=True), key)
        told = run("extract", "torch-1", "dtypes.bfloat16", "0, 1:3", "-o", target, "--force", code=0)
        self.assertEqual(told.stdout, f"{target}: bf16[2] as <u2\n")
        self.assertEqual(told.stderr, "extract: numpy has no bf16: its bytes are written as u2; --as f32 converts them\n")

    def test_diff_finds_no_difference_between_layouts_and_formats(self) -> None:
        for other in ALL:
            result = json_of("diff", "torch-1", other)
            self.assertTrue(result["equal"], other)
            self.assertEqual(result["compared"], len(flat(full_state())))

    def test_diff_tells_what_differs(self) -> None:
        state = flat(full_state())
        changed = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
        changed["model.rows"][1, 2] += 0.5
        changed["model.rows"][6, 5] = math.nan
        changed["model.columns"] = changed["model.columns"].float() + 0.25
        changed["dtypes.int64"][0, 0] = 2**62
        changed["model.whole"] = changed["model.whole"][:3]
        changed["dtypes.complex64"][2, 4] += 3 + 4j
        changed["step"] = 101
        del changed["model.scalar"]
        changed["new"] = torch.ones(1)
        torch.save(changed, checkpoints.FOLDER / "changed.pt")
        result = json_of("diff", "sherd-3", "changed.pt", code=1)
        self.assertEqual(result["only_in_first"], ["model.scalar"])
        self.assertEqual(result["only_in_second"], ["new"])
        self.assertEqual(result["objects"], [{"name": "step", "texts": ["100", "101"]}])
        tensors = {one["name"]: one for one in result["tensors"]}
        self.assertEqual(sorted(tensors), ["dtypes.complex64", "dtypes.int64", "model.columns", "model.rows", "model.whole"])
        self.assertEqual(tensors["model.whole"], {"name": "model.whole", "dtypes": ["f32", "f32"], "sizes": [[5], [3]]})
        rows = tensors["model.rows"]
        self.assertEqual((rows["elements"], rows["nans"], rows["max_absolute"], rows["first"]), (2, 1, 0.5, [1, 2]))
        before = state["model.rows"][1, 2].item()
        self.assertAlmostEqual(rows["max_relative"], 0.5 / (before + 0.5))
        self.assertEqual([float(text) for text in rows["first_values"]], [before, before + 0.5])
        self.assertEqual(tensors["model.columns"]["dtypes"], ["f64", "f32"])
        self.assertEqual((tensors["model.columns"]["elements"], tensors["model.columns"]["max_absolute"]), (36, 0.25))
        self.assertEqual(tensors["dtypes.int64"]["max_absolute"], 2.0**62 - state["dtypes.int64"][0, 0].item())
        self.assertEqual(tensors["dtypes.complex64"]["max_absolute"], 5)
        text = run("diff", "sherd-3", "changed.pt", "--filter", "model.[rs]*", code=1).stdout.splitlines()
        self.assertEqual(text[0], "- model.scalar")
        self.assertTrue(text[1].startswith("~ model.rows  f32[7, 6]: 2 of 42 elements differ, by 0.5 at most, relative "), text[1])
        self.assertTrue(text[1].endswith("; 1 NaN on one side"), text[1])
        self.assertEqual(text[2], "0 equal, 1 different, 1 only in the first (-), 0 only in the second (+)")
        run("diff", "sherd-3", "changed.pt", "--filter", "model.columns", "--ignore-dtype", "--absolute", "0.25", code=0)
        run("diff", "sherd-3", "changed.pt", "--filter", "model.columns", "--ignore-dtype", "--absolute", "0.2", code=1)
        run("diff", "sherd-3", "changed.pt", "--filter", "model.columns", "--absolute", "1", code=1)
        nan = {"x": torch.tensor([math.nan, 1.0, math.inf, -0.0])}
        torch.save(nan, checkpoints.FOLDER / "nan.pt")
        torch.save({"x": torch.tensor([-math.nan, 1.0, math.inf, 0.0])}, checkpoints.FOLDER / "nan2.pt")
        run("diff", "nan.pt", "nan2.pt", code=0)

    def test_verify_reads_everything(self) -> None:
        for name in ALL:
            result = json_of("verify", name)
            self.assertTrue(result["whole"], name)
            self.assertEqual(result["tensors"], len(self.tensors()))
            self.assertGreater(result["digests_compared"] + result["crcs_compared"], 0)
            self.assertEqual(result["unchecked_files"], [])

    def flipped(self, file: pathlib.Path, at: int, bit: int = 0) -> None:
        content = bytearray(file.read_bytes())
        content[at] ^= 1 << bit
        file.write_bytes(content)

    def test_verify_finds_a_flipped_bit_anywhere_in_what_sherd_wrote(self) -> None:
        pick = random.Random(1)
        source = checkpoints.FOLDER / "sherd-2"
        for file in sorted(source.iterdir()):
            for _ in range(12):
                damaged = copied("sherd-2", "damaged")
                at = pick.randrange(file.stat().st_size)
                self.flipped(damaged / file.name, at, pick.randrange(8))
                result = json_of("verify", damaged, code=1)
                self.assertFalse(result["whole"])
                files = {one["file"] for one in result["damage"]}
                self.assertEqual(files, {file.name}, (file.name, at))
                one = result["damage"][0]
                self.assertTrue(one["begin"] <= at < one["end"], one)

    def test_verify_names_the_tensor_among_those_of_a_block(self) -> None:
        damaged = copied("sherd-2", "damaged")
        file = damaged / "__1_0.distcp"
        self.flipped(file, file.read_bytes().index(checkpoints.numbers((7, 6))[4:].numpy().tobytes()) + 9)
        result = json_of("verify", damaged, code=1)
        self.assertEqual([(one["file"], one["names"]) for one in result["damage"]], [("__1_0.distcp", ["model.rows"])])

    def test_verify_finds_a_flipped_bit_in_what_a_crc_covers(self) -> None:
        for name in ("torch-1", "torch-3"):
            for tensor in json_of("inspect", name)["tensors"]:
                if tensor["bytes"] == 0:
                    continue
                chunk = tensor["chunks"][-1]
                elements = math.prod(chunk["sizes"]) * (tensor["bytes"] // math.prod(tensor["size"]))
                damaged = copied(name, "damaged")
                file = damaged / chunk["file"]
                content = file.read_bytes()[chunk["offset"] : chunk["offset"] + chunk["bytes"]]
                # The elements are the record data/0: its local header ends with its name and the filling.
                start = content.index(b"archive/data/0FB") + len("archive/data/0") + 4
                start = chunk["offset"] + (start + 63) // 64 * 64
                self.flipped(file, start + elements - 1, 3)
                result = json_of("verify", damaged, code=1)
                self.assertEqual([(one["file"], one["names"]) for one in result["damage"]], [(chunk["file"], [tensor["name"]])])
                self.assertLessEqual(result["damage"][0]["begin"], start + elements - 1)
                self.assertGreater(result["damage"][0]["end"], start + elements - 1)

    def test_verify_collects_all_damage(self) -> None:
        damaged = copied("sherd-3", "damaged")
        self.flipped(damaged / "__0_0.distcp", 100)
        (damaged / "__1_0.distcp").unlink()
        with open(damaged / "__2_0.distcp", "r+b") as file:
            file.truncate(1000)
        result = json_of("verify", damaged, code=1)
        problems = {(one["file"], one["problem"]) for one in result["damage"]}
        self.assertIn(("__0_0.distcp", "the bytes are not those that were saved"), problems)
        self.assertIn(("__1_0.distcp", "the file is missing"), problems)
        self.assertIn(("__2_0.distcp", "the file has another length than was saved"), problems)
        text = run("verify", damaged, code=1)
        self.assertEqual(text.stderr, f"verify: the checkpoint is damaged: {len(result['damage'])} faults found\n")
        self.assertTrue(all(line.startswith(("damaged: ", "         ")) for line in text.stdout.splitlines()), text.stdout)

    def test_verify_of_torch_files_that_are_cut_or_missing(self) -> None:
        damaged = copied("torch-2", "damaged")
        with open(damaged / "__1_0.distcp", "r+b") as file:
            file.truncate(5000)
        result = json_of("verify", damaged, code=1)
        self.assertEqual({one["file"] for one in result["damage"]}, {"__1_0.distcp"})
        self.assertIn("the file ends too early", {one["problem"] for one in result["damage"]})
        (damaged / "__1_0.distcp").unlink()
        result = json_of("verify", damaged, code=1)
        self.assertEqual([one["problem"] for one in result["damage"]], ["the file is missing"])
        names = {t["name"] for t in json_of("inspect", "torch-2")["tensors"] if any(c["file"] == "__1_0.distcp" for c in t["chunks"])}
        self.assertLessEqual(names, set(result["damage"][0]["names"]))

    def test_verify_of_safetensors_says_what_it_cannot_check(self) -> None:
        try:
            from safetensors import safe_open
            from safetensors.torch import save_file
        except ImportError:
            self.skipTest("the package safetensors is not installed")
        run("convert", "sherd-1", "one.safetensors", "--only", "model.*", "--force", code=0)
        result = json_of("verify", "one.safetensors")
        self.assertTrue(result["whole"])
        self.assertEqual((result["digests_compared"], result["unchecked_files"]), (1, []))
        run("diff", "one.safetensors", "torch-4", "--filter", "model.*", code=0)
        # The library reads it, and what it writes with the same texts is another file.
        with safe_open(checkpoints.FOLDER / "one.safetensors", "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            texts = file.metadata()
        self.assertIn("sherd.digests", texts)
        save_file(tensors, checkpoints.FOLDER / "other.safetensors", texts)
        result = json_of("verify", "other.safetensors")
        self.assertTrue(result["whole"])
        self.assertEqual((result["digests_compared"], result["unchecked_files"]), (0, ["other.safetensors"]))
        run("diff", "one.safetensors", "other.safetensors", code=0)

    def test_verify_finds_holes_and_overlaps(self) -> None:
        import pickle

        damaged = copied("torch-2", "damaged")
        with open(damaged / ".metadata", "rb") as file:
            metadata = pickle.load(file)
        chunks = metadata.state_dict_metadata["model.rows"].chunks
        chunks[0].sizes = torch.Size([3, 6])  # of 4 rows
        with open(damaged / ".metadata", "wb") as file:
            pickle.dump(metadata, file)
        result = json_of("verify", damaged, code=1)
        self.assertIn(
            {"problem": "a part of the tensor is stored nowhere", "file": None, "begin": None, "end": None, "names": ["model.rows"], "detail": "[3:4, 0:6] of [7, 6]"},
            result["damage"],
        )
        error = run("cat", damaged, "model.rows", code=1).stderr
        self.assertEqual(error.splitlines()[0], "cat: a part of a tensor is stored nowhere")

    @unittest.skipUnless(has_package(), "needs the Python package to save on a base")
    def test_incremental_checkpoints(self) -> None:
        info = json_of("inspect", "run/step-2")
        self.assertEqual([base["path"] for base in info["bases"]], ["run/step-1"])
        self.assertGreater(info["files"][0]["bytes_in_bases"], 2**20)
        self.assertTrue(json_of("verify", "run/step-2")["whole"])
        result = json_of("diff", "run/step-1", "run/step-2", code=1)
        self.assertEqual([(one["name"], one["elements"], one["first"]) for one in result["tensors"]], [("big", 1, [2**18 + 5])])
        self.assertEqual(json_of("cat", "run/step-2", "big", f"{2**18 + 4}:{2**18 + 7}")["values"], [2**18 + 4, -1, 2**18 + 6])
        copied("run", "broken")
        data = next((checkpoints.FOLDER / "broken/step-1").glob("*.distcp"))
        self.flipped(data, 2**20 * 2 + 77)
        self.assertFalse(json_of("verify", "broken/step-2", code=1)["whole"])
        data.unlink()
        self.assertFalse(json_of("verify", "broken/step-2", code=1)["whole"])

    def test_view_holds_the_whole_checkpoint(self) -> None:
        page = checkpoints.FOLDER / "page.html"
        state = {f"layer.{i}.</script>": torch.zeros(2) for i in range(3)} | {"quote'\"<": 1}
        torch.save(state, checkpoints.FOLDER / "strange.pt")
        for name in ("torch-4", "sherd-3", "strange.pt"):
            run("view", name, "--html", page, "--force", code=0)
            text = page.read_text(encoding="utf-8")
            data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
            seen = json.loads(data)
            info = json_of("inspect", name)
            self.assertEqual([one["name"] for one in seen["tensors"]], [one["name"] for one in info["tensors"]])
            for mine, theirs in zip(seen["tensors"], info["tensors"], strict=True):
                self.assertEqual(
                    mine["chunks"],
                    [
                        [[file["name"] for file in info["files"]].index(c["file"]), c["offset"], c["bytes"], c["offsets"], c["sizes"]]
                        for c in theirs["chunks"]
                    ],
                )
            self.assertEqual(text.count("<script"), 2)
            self.assertNotIn("http://", text.replace("http://www.w3.org", ""))


if __name__ == "__main__":
    unittest.main()
