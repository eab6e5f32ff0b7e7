"""What the command says of input that it cannot use: whole texts, exit codes, and nothing half written."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
import unittest

import checkpoints
import torch
from checkpoints import copied, run

LOOKED_FOR = ".metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors"


class BadInputTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = checkpoints.FOLDER / "bad"
        self.folder.mkdir(exist_ok=True)

    def refused(self, *words: object, code: int = 2) -> str:
        result = run(*words, folder=self.folder)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def test_a_folder_that_is_no_checkpoint(self) -> None:
        (self.folder / "photos").mkdir(exist_ok=True)
        (self.folder / "photos/cat.jpg").write_bytes(b"\xff\xd8")
        for words in (["inspect", "photos"], ["verify", "photos"], ["cat", "photos", "x"], ["view", "photos", "--html", "x.html"]):
            self.assertEqual(
                self.refused(*words),
                f"{words[0]}: there is no checkpoint at this path\n  path: photos\n  looked for: {LOOKED_FOR}\n  found: cat.jpg\n"
                "  help: the path that was given to save\n",
            )
        self.assertFalse((self.folder / "x.html").exists())
        for words in (["inspect", "nowhere"], ["diff", "nowhere", "photos"]):
            self.assertEqual(
                self.refused(*words),
                f"{words[0]}: there is no checkpoint at this path\n  path: nowhere\n  looked for: {LOOKED_FOR}\n  found: nothing\n"
                "  help: the path that was given to save\n",
            )
        self.assertEqual(
            self.refused("ls", "photos"),
            "ls: no checkpoints lie in this directory\n  directory: photos\n  names there: 1\n  help: sherd inspect for one checkpoint\n",
        )

    def test_a_format_that_cannot_be_told(self) -> None:
        (self.folder / "cat.jpg").write_bytes(b"\xff\xd8\xff\xe0")
        self.assertEqual(
            self.refused("inspect", "cat.jpg"),
            "inspect: the file is of no format that is known\n  file: cat.jpg\n"
            "  looked for: an archive of torch.save or torch::save, a safetensors file\n  begins with: ff d8 ff e0\n"
            "  help: a file of one of these formats, or the folder of a distributed checkpoint\n",
        )

    def test_truncated_and_damaged_files(self) -> None:
        damaged = copied("torch-2", "bad/damaged")
        (damaged / ".metadata").write_bytes((damaged / ".metadata").read_bytes()[:100])
        for verb in ("inspect", "cat", "diff"):
            words = {"inspect": [], "cat": ["step"], "diff": [checkpoints.FOLDER / "torch-1"]}[verb]
            error = self.refused(verb, "damaged", *words, code=1)
            self.assertTrue(error.startswith(f"{verb}: "), error)
            self.assertIn("damaged/.metadata", error)
        result = run("verify", "damaged", folder=self.folder, code=1)
        self.assertIn("damaged: .metadata, bytes 0 to 100: the metadata cannot be read", result.stdout)
        cut = self.folder / "cut.pt"
        cut.write_bytes((checkpoints.FOLDER / "state.pt").read_bytes()[:5000])
        self.assertTrue(self.refused("inspect", "cut.pt", code=1).startswith("inspect: "))
        ours = copied("sherd-2", "bad/ours")
        data = bytearray((ours / "__0_0.distcp").read_bytes())
        data[data.index(checkpoints.numbers((7, 6))[:4].numpy().tobytes()) + 40] ^= 1
        (ours / "__0_0.distcp").write_bytes(data)
        error = self.refused("cat", "ours", "model.rows", code=1)
        self.assertEqual(error.splitlines()[0], "cat: a file is damaged: its bytes are not those that were saved")
        self.assertIn("\n  help: another checkpoint, or --no-verify to take the bytes as they are\n", error)
        run("cat", "ours", "model.rows", "--no-verify", folder=self.folder, code=0)

    def test_hostile_files(self) -> None:
        hostile = self.folder / "hostile"
        hostile.mkdir(exist_ok=True)
        (hostile / ".metadata").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
        error = self.refused("inspect", "hostile", code=1)
        self.assertTrue(error.startswith("inspect: "), error)
        self.assertIn("os.system", error)
        (self.folder / "huge.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
        self.assertNotEqual(run("inspect", "huge.safetensors", folder=self.folder).returncode, 0)
        self.assertFalse((self.folder / "pwned").exists())

    def test_names_that_match_nothing(self) -> None:
        path = checkpoints.FOLDER / "torch-1"
        for verb in (["inspect", path], ["diff", path, path], ["view", path, "--html", "page.html"]):
            self.assertEqual(
                self.refused(*verb, "--filter", "no*thing"),
                f"{verb[0]}: no name matches\n  checkpoint: {path}\n  pattern: no*thing\n  help: sherd inspect --names {path}\n",
            )
        self.assertFalse((self.folder / "page.html").exists())
        self.assertEqual(
            self.refused("cat", path, "rows"),
            f"cat: the checkpoint has no such name\n  checkpoint: {path}\n  name: rows\n  similar: model.rows\n"
            f"  help: sherd inspect --names {path}\n",
        )

    def test_slices_outside_of_the_tensor(self) -> None:
        path = checkpoints.FOLDER / "torch-1"
        for text, why in [
            ("7", "7 is outside of dim 0"), ("0, 0, 0", "3 places for a tensor of 2 dims"), ("::2", "steps are not supported"),
            ("a:b", '"a" is no number'), ("0,,1", "3 places for a tensor of 2 dims"), ("..., ...", "... stands twice"),
        ]:  # fmt: skip
            self.assertEqual(
                self.refused("cat", path, "model.rows", text),
                f"cat: this is no part of the tensor\n  slice: {text}\n  size: [7, 6]\n  why: {why}\n"
                "  help: '0:10, -1': ranges and places as in Python, without steps\n",
            )
        self.assertEqual(
            self.refused("cat", path, "step", "0"),
            f"cat: this is no tensor, so it has no parts\n  name: step\n  help: sherd cat {path} step\n",
        )
        self.assertEqual(
            self.refused("extract", path, "step", "-o", "x.npy"),
            f"extract: this is no tensor\n  name: step\n  help: sherd cat {path} step --json\n",
        )

    def test_a_target_that_exists(self) -> None:
        target = self.folder / "there.npy"
        target.write_text("precious")
        path = checkpoints.FOLDER / "torch-1"
        self.assertEqual(
            self.refused("extract", path, "model.rows", "-o", "there.npy"),
            "extract: the target exists\n  target: there.npy\n  help: another name, or --force\n",
        )
        self.assertEqual(
            self.refused("view", path, "--html", "there.npy"),
            "view: the target exists\n  target: there.npy\n  help: another name, or --force\n",
        )
        self.assertEqual(target.read_text(), "precious")

    def test_a_full_disk(self) -> None:
        path = checkpoints.FOLDER / "torch-1"
        limited = subprocess.run(
            ["sh", "-c", f"ulimit -f 1; trap '' XFSZ; exec {checkpoints.SHERD} view {path} --html full.html"],
            cwd=self.folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        self.assertEqual(limited.returncode, 2, limited.stderr)
        self.assertTrue(limited.stderr.startswith("view: "), limited.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("full")], [])
        for words in ("inspect", "--help", "man"):
            full = subprocess.run(["sh", "-c", f"{checkpoints.SHERD} {words} {path if words == 'inspect' else ''} > /dev/full"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((full.returncode, full.stderr.endswith(": the output could not be written\n")), (2, True), full.stderr)

    def test_usage(self) -> None:
        self.assertEqual(self.refused("inspect"), "inspect: checkpoint is required\n  help: sherd inspect --help\n")
        self.assertEqual(self.refused("gc", "."), "gc: nothing says what is to be kept\n  directory: .\n  help: sherd gc . --keep-last 3\n")
        self.assertEqual(
            self.refused("gc", ".", "--keep-last", "2"),
            "gc: no checkpoints of a run lie in this directory\n  directory: .\n  looked for: step-<number>\n  help: sherd ls .\n",
        )
        self.assertEqual(
            self.refused("inspect", "ftp://host/x"),
            "inspect: no such kind of storage\n  path: ftp://host/x\n  kind: ftp\n  help: a path of this machine, or s3://BUCKET/KEY\n",
        )
        self.assertEqual(
            self.refused("inspect", "s3://bucket"), "inspect: this is no path in an object store\n  path: s3://bucket\n  help: s3://BUCKET/KEY\n"
        )
        for words in (["gc", ".", "--keep-last", "0"], ["extract", "a", "b", "-o", "c", "--as", "f16"], ["inspect", "a", "--table", "--json"], ["inspect", "a", "--fly"]):
            error = self.refused(*words)
            self.assertTrue(error.startswith(f"{words[0]}: ") and error.endswith(f"\n  help: sherd {words[0]} --help\n"), error)

    def test_an_interrupt_leaves_nothing_half_written(self) -> None:
        # 256 MiB that take no room: the file ends in a hole.
        source = self.folder / "large.safetensors"
        header = b'{"x":{"dtype":"U8","shape":[268435456],"data_offsets":[0,268435456]}}'
        header += b" " * (-len(header) % 8)
        with open(source, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + 268435456)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen(
                [checkpoints.SHERD, "extract", "large.safetensors", "x", "-o", "large.npy"],
                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            self.wait_for_draft()
            process.send_signal(signal.SIGSTOP)
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            out, error = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out, error), (code, "", "extract: interrupted; nothing was left half written\n"))
            self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("large.npy")], [])
        source.unlink()

    def wait_for_draft(self) -> None:
        for _ in range(100000):
            if any(name.startswith("large.npy.tmp-") for name in os.listdir(self.folder)):
                return
            time.sleep(0.0001)
        self.fail("the draft did not come")

    def test_ls_says_what_is_damaged(self) -> None:
        run_folder = self.folder / "run"
        for step in (1, 2, 10):
            run_folder.mkdir(exist_ok=True)
            copied("torch-1", f"bad/run/step-{step}")
        (run_folder / "step-2/.metadata").write_bytes(b"\x80\x04")
        (run_folder / "step-10/__0_0.distcp").unlink()
        (run_folder / "notes.txt").write_text("mine")
        (run_folder / "step-11.tmp-abc").mkdir(exist_ok=True)
        listed = checkpoints.json_of("ls", run_folder)
        self.assertEqual([(one["name"], one["step"], one["damage"] is None) for one in listed["checkpoints"]], [("step-1", 1, True), ("step-2", 2, False), ("step-10", 10, False)])
        self.assertEqual(listed["checkpoints"][2]["damage"], "__0_0.distcp is missing")
        self.assertEqual(listed["unfinished"], [{"folder": f"{run_folder}/step-11", "id": "abc"}])

    def test_gc_keeps_what_the_manager_keeps(self) -> None:
        run_folder = self.folder / "old"
        run_folder.mkdir(exist_ok=True)
        for step in (100, 150, 200, 250, 300):
            copied("torch-1", f"bad/old/step-{step}")
        (run_folder / "step-350.tmp-abc").mkdir()
        (run_folder / "best").mkdir()
        gone = checkpoints.json_of("gc", run_folder, "--keep-last", 2, "--keep-every", 100, "--dry-run")
        self.assertEqual((gone["removed"], gone["kept"], gone["removed_drafts"]), (["step-150"], ["step-100", "step-200", "step-250", "step-300"], []))
        self.assertEqual(len(os.listdir(run_folder)), 7)
        text = run("gc", run_folder, "--keep-last", 1, "--stale", 0, code=0).stdout
        self.assertEqual(
            text,
            "removed step-250\nremoved step-200\nremoved step-150\nremoved step-100\n"
            f"removed {run_folder}/step-350.tmp-abc, a draft\nkept 1 of 5\n",
        )
        self.assertEqual(sorted(os.listdir(run_folder)), ["best", "step-300"])

    def test_gc_removes_parts_of_files_that_no_save_will_finish(self) -> None:
        run_folder = self.folder / "parts"
        run_folder.mkdir(exist_ok=True)
        for name in ("step-1", "gpt.pt.parts", "best.safetensors.parts", "spare.parts"):
            copied("torch-1", f"bad/parts/{name}")
        (run_folder / "notes.pt.parts").mkdir()
        os.utime(run_folder / "gpt.pt.parts", (1, 1))
        for file in (run_folder / "gpt.pt.parts").iterdir():
            os.utime(file, (1, 1))
        self.assertEqual(checkpoints.json_of("gc", run_folder, "--keep-last", 1, "--dry-run")["removed_drafts"], [f"{run_folder}/gpt.pt.parts"])
        text = run("gc", run_folder, "--keep-last", 1, "--stale", 0, code=0).stdout
        self.assertEqual(text, f"removed {run_folder}/best.safetensors.parts, parts of a file\nremoved {run_folder}/gpt.pt.parts, parts of a file\nkept 1 of 1\n")
        self.assertEqual(sorted(os.listdir(run_folder)), ["notes.pt.parts", "spare.parts", "step-1"])

    @unittest.skipUnless(checkpoints.has_package(), "needs the Python package to save on a base")
    def test_gc_keeps_bases(self) -> None:
        copied("run", "bad/based")
        based = pathlib.Path(self.folder / "based")
        self.assertEqual(checkpoints.json_of("gc", based, "--keep-last", 1)["removed"], [])
        run("verify", based / "step-2", code=0)
        manifest = based / "step-2/sherd.manifest"
        manifest.write_bytes(manifest.read_bytes()[:-1])
        error = self.refused("gc", based, "--keep-last", 1)
        self.assertEqual(error.splitlines()[0], "gc: what a checkpoint stands on cannot be read, so nothing is removed")
        self.assertTrue((based / "step-1").exists())

    def test_a_state_that_is_one_tensor_or_nothing(self) -> None:
        torch.save({}, self.folder / "nothing.pt")
        self.assertEqual(run("inspect", "nothing.pt", folder=self.folder, code=0).stdout, "nothing.pt  torch.save, 0 tensors, 0 objects, 1 file, 0 B of elements\n")
        torch.save(torch.ones(2), self.folder / "one.pt")
        self.assertEqual(run("cat", "one.pt", "value", folder=self.folder, code=0).stdout, "[1., 1.]\nf32[2]\n")
        run("verify", "nothing.pt", folder=self.folder, code=0)


if __name__ == "__main__":
    unittest.main()
