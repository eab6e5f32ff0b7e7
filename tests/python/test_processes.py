"""The Python package with ranks as processes, started by torchrun."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).with_name("process_program.py")


def torchrun(what: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(PROGRAM)]
    environment = {**os.environ, "SHERD_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, what], capture_output=True, text=True, timeout=240, env=environment, check=False)


class Processes(unittest.TestCase):
    def run_everywhere(self, what: str) -> None:
        result = torchrun(what)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("fine"), 4, result.stdout)

    def test_torchrun_alone(self) -> None:
        self.run_everywhere("torchrun_alone")

    def test_random_numbers_are_drawn_by_place(self) -> None:
        self.run_everywhere("draws_by_place")

    def test_process_groups_are_reused(self) -> None:
        self.run_everywhere("reuses_process_groups")

    def test_shared_memory_is_a_backend_of_torch(self) -> None:
        self.run_everywhere("shared_memory")

    def test_a_rank_that_dies_is_named_over_shared_memory(self) -> None:
        result = torchrun("shared_memory_and_a_rank_that_dies")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.count("told"), 3, result.stdout + result.stderr)

    def test_tensors_of_torch_convert(self) -> None:
        self.run_everywhere("converts")

    def test_tensors_of_other_ranks_are_fetched(self) -> None:
        self.run_everywhere("fetches")

    def test_a_program_may_end_without_shutting_rpc_down(self) -> None:
        self.run_everywhere("fetches_and_never_shuts_down")

    def test_mixing_is_refused(self) -> None:
        self.run_everywhere("mixing_is_refused")

    def test_no_thread_outlives_python(self) -> None:
        result = torchrun("no_thread_outlives_python")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("threads left: []"), 4, result.stdout)

    def test_a_move_that_nobody_waits_for_ends_the_program_badly(self) -> None:
        result = torchrun("nobody_waits_for_a_move")
        self.assertEqual(result.returncode, 1)
        self.assertIn("all_to_all: ranks call different things", result.stderr)

    def test_the_others_learn_why_a_rank_failed(self) -> None:
        result = torchrun("one_rank_fails")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("LookupError: rank two is lost", result.stderr)
        self.assertEqual(result.stdout.count("told"), 3, result.stdout + result.stderr)


class Import(unittest.TestCase):
    """`import sherd` beside no torch, and beside another one."""

    def import_beside(self, torch_files: dict[str, str]) -> str:
        import sherd

        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "sherd")
            package.symlink_to(pathlib.Path(sherd.__file__).parent)
            for name, text in torch_files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            result = subprocess.run(
                [sys.executable, "-S", "-c", "import sherd"],
                capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": folder},
            )
        self.assertEqual(result.returncode, 1)
        return result.stderr

    def test_no_torch(self) -> None:
        import sherd

        said = self.import_beside({})
        self.assertIn("ImportError: import sherd: torch cannot be imported\n", said)
        self.assertIn(f"  help: pip install torch=={sherd.torch_version}\n", said)

    def test_another_torch(self) -> None:
        import sherd

        said = self.import_beside({"torch/__init__.py": "__version__ = '1.13.1+cpu'\n"})
        self.assertIn("ImportError: import sherd: this sherd was built for another version of torch\n", said)
        self.assertIn(f"  built for: torch {sherd.torch_version}\n  found: torch 1.13.1+cpu\n  help: ", said)


if __name__ == "__main__":
    unittest.main()
