"""The verbs on checkpoints in an object store: paths s3://bucket/key."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import unittest

import checkpoints
from checkpoints import json_of, run

SERVER = pathlib.Path(__file__).parent.parent / "s3" / "server.py"


class ObjectStoreTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server = subprocess.Popen([sys.executable, str(SERVER), "bucket"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.server.stdout is not None
        address = self.server.stdout.readline().strip()
        if not address and self.server.wait() == 77:
            self.skipTest("moto is not installed")
        os.environ.update(AWS_ENDPOINT_URL_S3=address, AWS_ACCESS_KEY_ID="access-key", AWS_SECRET_ACCESS_KEY="secret/key+of=tests")

    def tearDown(self) -> None:
        if self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        assert self.server.stdout is not None and self.server.stdin is not None
        self.server.stdout.close()
        self.server.stdin.close()
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            os.environ.pop(name, None)

    def test_every_verb_that_reads(self) -> None:
        for step in (1, 2, 3):
            run("convert", "torch-3", f"s3://bucket/run/step-{step}", code=0)
        there = "s3://bucket/run/step-2"
        self.assertEqual([one["name"] for one in json_of("inspect", there)["tensors"]], [one["name"] for one in json_of("inspect", "torch-3")["tensors"]])
        self.assertTrue(json_of("verify", there)["whole"])
        run("diff", there, "torch-1", code=0)
        self.assertEqual(run("cat", there, "step", code=0).stdout, "100\n")
        run("extract", there, "model.rows", "-o", "s3://bucket/rows.npy", code=0)
        self.assertEqual(run("extract", there, "model.rows", "-o", "s3://bucket/rows.npy").returncode, 2)
        run("view", there, "--html", checkpoints.FOLDER / "store.html", "--force", code=0)
        self.assertEqual([one["name"] for one in json_of("ls", "s3://bucket/run")["checkpoints"]], ["step-1", "step-2", "step-3"])
        self.assertEqual(json_of("gc", "s3://bucket/run", "--keep-last", 1)["removed"], ["step-2", "step-1"])
        self.assertEqual([one["name"] for one in json_of("ls", "s3://bucket/run")["checkpoints"]], ["step-3"])
        self.assertEqual(run("inspect", there).returncode, 2)


if __name__ == "__main__":
    unittest.main()
