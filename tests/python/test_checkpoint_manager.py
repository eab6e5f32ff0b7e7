"""Checkpoints of a run from Python: kept, removed, gone on from; and what is told while they are written and read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Any

import torch

import sherd


class Run:
    """A module over a mesh, and its optimizer."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.mesh = sherd.init_device_mesh("cpu", (ranks,))
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(6, 5)
        sherd.distribute_module(self.model, self.mesh, self.in_rows)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    @staticmethod
    def in_rows(name: str, module: torch.nn.Module, mesh: sherd.DeviceMesh) -> None:
        for parameter in module.parameters(recurse=False):
            sherd.distribute_parameter_(parameter, mesh, [sherd.Shard(0)])

    def step(self) -> None:
        self.optimizer.zero_grad()
        x = sherd.distribute_tensor(torch.ones(3, 6), self.mesh, [sherd.Replicate()])
        self.model(x).square().sum().backward()
        self.optimizer.step()

    def weight(self) -> torch.Tensor:
        return sherd.full_tensor(self.model.weight.detach())


class CheckpointManagerTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_run_goes_on_on_other_ranks(self) -> None:
        folder = self.folder

        def first(rank: int) -> torch.Tensor:
            checkpoints = sherd.CheckpointManager(folder, keep_last=2, keep_every=4)
            run = Run(2, seed=1)
            assert checkpoints.resume(run.model, run.optimizer) is None
            for step in range(1, 8):
                run.step()
                checkpoints.save_async(step, run.model, run.optimizer)
            checkpoints.wait()
            assert checkpoints.steps() == [4, 6, 7], checkpoints.steps()
            run.step()
            return run.weight()

        def second(rank: int) -> torch.Tensor:
            checkpoints = sherd.CheckpointManager(folder)
            run = Run(3, seed=2)
            assert checkpoints.resume(run.model, run.optimizer) == 7
            assert run.optimizer.param_groups[0]["lr"] == 1e-2
            run.step()
            return run.weight()

        expected = sherd.spawn(2, first)[0]
        for weight in sherd.spawn(3, second):
            torch.testing.assert_close(weight, expected, rtol=0, atol=1e-7)

    def test_a_damaged_one_is_skipped_and_named(self) -> None:
        checkpoints = sherd.CheckpointManager(self.folder, incremental=True)
        for step in (1, 2):
            checkpoints.save(step, {"w": torch.full((1000,), float(step)), "step": step})
        with open(os.path.join(checkpoints.path_of(2), ".metadata"), "r+b") as file:
            file.truncate(20)
        state: dict[str, Any] = {"w": torch.zeros(1000), "step": 0}
        self.assertEqual(checkpoints.load_latest(state), 1)
        self.assertEqual(state["step"], 1)
        self.assertEqual(state["w"][0], 1)
        self.assertIn("step-2 is skipped", checkpoints.warnings[0])
        with open(os.path.join(checkpoints.path_of(1), ".metadata"), "r+b") as file:
            file.truncate(20)
        with self.assertRaisesRegex(RuntimeError, "none of the checkpoints in the folder can be loaded"):
            checkpoints.load_latest(state)

    def test_an_optimizer_whose_steps_need_a_closure(self) -> None:
        """Its state cannot be had before the first step; how long its lists are depends on how many it has made."""

        def start() -> tuple[torch.nn.Module, torch.optim.LBFGS]:
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).double()
            return model, torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3, history_size=4)

        def step(model: torch.nn.Module, optimizer: torch.optim.LBFGS) -> None:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = (model(torch.arange(12.0, dtype=torch.float64).view(4, 3)) - 1).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)  # type: ignore[arg-type]

        checkpoints = sherd.CheckpointManager(self.folder)
        model, optimizer = start()
        checkpoints.save(0, model, optimizer)
        self.assertEqual(checkpoints.resume(*start()), 0)
        for number in range(1, 4):
            step(model, optimizer)
            checkpoints.save(number, model, optimizer)
        for steps_before in (0, 1, 5):
            other, continued = start()
            continued.param_groups[0]["lr"] = 7.0
            for _ in range(steps_before):
                step(other, continued)
            self.assertEqual(checkpoints.resume(other, continued), 3)
            self.assertEqual(continued.param_groups[0]["lr"], 0.3)
            expected, expected_optimizer = start()
            for _ in range(4):
                step(expected, expected_optimizer)
            step(other, continued)
            for mine, theirs in zip(other.parameters(), expected.parameters(), strict=True):
                self.assertTrue(mine.equal(theirs), steps_before)

    def test_a_state_that_cannot_be_had_is_named_by_what_asked_for_it(self) -> None:
        class Raises:
            def state_dict(self) -> dict[str, Any]:
                raise KeyError("no state")

            def load_state_dict(self, state: dict[str, Any]) -> None:
                pass

        checkpoints = sherd.CheckpointManager(self.folder)
        checkpoints.save(1, {"a": 1})
        for operation, call in (("save", lambda: checkpoints.save(2, {"a": Raises()})),
                                ("load", lambda: checkpoints.load_latest({"a": Raises()}))):
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertIn(f"{operation}: an object of this rank did not give its state\n", str(caught.exception))
            self.assertIn("because: KeyError: 'no state'", str(caught.exception))

    def test_what_does_not_fit_is_an_error(self) -> None:
        checkpoints = sherd.CheckpointManager(self.folder)
        checkpoints.save(1, {"w": torch.zeros(3)})
        with self.assertRaisesRegex(ValueError, "does not fit"):
            checkpoints.load_latest({"w": torch.zeros(4)})
        model = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(ValueError, "a module without its optimizer"):
            checkpoints.save(2, model)
        with self.assertRaisesRegex(ValueError, "an optimizer beside a state"):
            checkpoints.save(2, {}, torch.optim.SGD(model.parameters()))
        with self.assertRaisesRegex(ValueError, "negative"):
            sherd.CheckpointManager(self.folder, keep_last=-1)

    def test_stateful_objects_take_part(self) -> None:
        checkpoints = sherd.CheckpointManager(self.folder)
        mesh = sherd.init_device_mesh("cpu", (1,))
        sampler = sherd.ShardedSampler(10, mesh, batch_size=2, seed=3)
        next(iter(sampler))
        checkpoints.save(5, {"sampler": sampler})
        other = sherd.ShardedSampler(10, mesh, batch_size=2, seed=3)
        self.assertNotEqual(other.state_dict(), sampler.state_dict())
        self.assertEqual(checkpoints.load_latest({"sampler": other}), 5)
        self.assertEqual(other.state_dict(), sampler.state_dict())


class ProgressTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "ck")

    def check(self, told: list[tuple[int, int]], at_least: int) -> None:
        self.assertEqual(told, sorted(told))
        self.assertEqual(told[-1][0], told[-1][1])
        self.assertGreaterEqual(told[-1][1], at_least)

    def test_of_every_call(self) -> None:
        state = {"w": torch.arange(300_000.0)}
        for write in (sherd.save, lambda *args, **kw: sherd.save_async(*args, **kw).wait()):
            told: list[tuple[int, int]] = []
            write(state, self.path, progress=lambda done, total: told.append((done, total)))
            self.assertGreater(len(told), 3)
            self.check(told, 1_200_000)
        for read in (sherd.load, lambda _, path, progress: sherd.load_state_dict(path, progress=progress)):
            told = []
            read({"w": torch.zeros(300_000)}, self.path, progress=lambda done, total: told.append((done, total)))
            self.check(told, 1_200_000)

    def test_what_it_raises_ends_the_save_on_all_ranks(self) -> None:
        path = self.path

        def rank_main(rank: int) -> str:
            def stop(done: int, total: int) -> None:
                if rank == 1:
                    raise KeyError("enough")

            try:
                sherd.save({"w": torch.zeros(1000), rank: torch.ones(10)}, path, progress=stop)
            except (RuntimeError, ValueError) as error:
                return str(error)
            return ""

        for message in sherd.spawn(2, rank_main):
            self.assertIn("KeyError: 'enough'", message)
        self.assertFalse(os.path.exists(path))

    def test_of_a_save_that_outlives_the_program(self) -> None:
        """The thread that saves calls Python until the end, of the save and not of the interpreter."""
        program = f"""
            import torch, sherd
            told = []
            sherd.save_async({{"w": torch.zeros(4_000_000)}}, {self.path!r}, progress=lambda done, total: told.append(done))
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)
        self.assertEqual(sherd.verify_checkpoint(self.path).damage, [])


if __name__ == "__main__":
    unittest.main()
