"""sherd.Pipeline: a model in stages has the loss, the gradients and the outputs of the same model on one device."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from torch import nn

import sherd
from sherd import Replicate, Shard

INPUT = torch.arange(48.0, dtype=torch.float64).reshape(12, 4).sin()
TARGET = torch.arange(36.0, dtype=torch.float64).reshape(12, 3).cos()


def stage_of(i: int, stages: int) -> nn.Sequential:
    """Stage i: the width grows from 4, and the last one has 3 outputs."""
    stage = nn.Sequential(nn.Linear(4 + i, 8), nn.GELU(), nn.Linear(8, 3 if i + 1 == stages else 5 + i)).double()
    with torch.no_grad():
        for salt, parameter in enumerate(stage.parameters()):
            parameter.copy_(torch.arange(parameter.numel(), dtype=torch.float64).add(7.0 * i + salt).sin().view_as(parameter))
    return stage


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output, target)


class Alone:
    """The whole model on one device."""

    def __init__(self, count: int) -> None:
        self.stages = [stage_of(i, count) for i in range(count)]
        self.output = INPUT
        for stage in self.stages:
            self.output = stage(self.output)
        self.loss = loss_of(self.output, TARGET)
        self.loss.backward()


class Pipelines(unittest.TestCase):
    def check_grads(self, stage: nn.Module, alone: nn.Module, times: float) -> None:
        for mine, expected in zip(stage.parameters(), alone.parameters()):
            assert mine.grad is not None and expected.grad is not None
            grad = sherd.full_tensor(mine.grad) if sherd.is_dtensor(mine.grad) else mine.grad
            torch.testing.assert_close(grad, times * expected.grad, rtol=0, atol=1e-10)

    def test_equals_one_device(self) -> None:
        for count, schedule, microbatches in ((1, "1F1B", 3), (2, "GPipe", 4), (3, "1F1B", 6), (4, "1F1B", 2)):
            alone = Alone(count)

            def train(rank: int) -> None:
                mesh = sherd.init_device_mesh("cpu", (count,), mesh_dim_names=("pp",))
                stage = stage_of(rank, count)
                pipeline = sherd.Pipeline(stage, mesh["pp"], schedule=schedule, microbatches=microbatches)
                self.assertEqual((pipeline.stage, pipeline.stages), (rank, count))
                x = INPUT if pipeline.is_first else None
                y = TARGET if pipeline.is_last else None
                loss = pipeline.step(x, y, loss_of)
                self.assertAlmostEqual(loss.item(), alone.loss.item(), delta=1e-10)
                self.assertFalse(loss.requires_grad)
                self.check_grads(stage, alone.stages[rank], 1)
                pipeline.step(x, y, loss_of)  # gradients add up
                self.check_grads(stage, alone.stages[rank], 2)
                output = pipeline(x)
                self.assertEqual(output is not None, pipeline.is_last)
                if output is not None:
                    torch.testing.assert_close(output, alone.output.detach(), rtol=0, atol=1e-10)

            with self.subTest(stages=count, schedule=schedule, microbatches=microbatches):
                sherd.spawn(count, train, timeout=60)

    def test_stages_of_dtensors(self) -> None:
        alone = Alone(2)

        def train(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
            stage = stage_of(rank // 2, 2)
            sherd.data_parallel(stage, mesh["dp"])
            pipeline = sherd.Pipeline(stage, mesh["pp"], microbatches=3)
            x = sherd.distribute_tensor(INPUT, mesh["dp"], [Shard(0)])
            y = sherd.distribute_tensor(TARGET, mesh["dp"], [Shard(0)])
            loss = pipeline.step(x, y, loss_of)
            self.assertAlmostEqual(loss.item(), alone.loss.item(), delta=1e-10)
            self.check_grads(stage, alone.stages[rank // 2], 1)
            self.assertEqual(sherd.placements(next(stage.parameters())), (Replicate(),))

        sherd.spawn(4, train, timeout=60)

    def test_a_stage_that_raises(self) -> None:
        seen: dict[int, BaseException] = {}

        def bad(x: torch.Tensor) -> torch.Tensor:
            raise KeyError("no such layer")

        def train(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (2,))
            pipeline = sherd.Pipeline(bad if rank == 0 else nn.Linear(4, 3).double(), mesh, microbatches=2)
            try:
                pipeline.step(INPUT, TARGET, loss_of)
            except Exception as error:
                seen[rank] = error
                raise

        with self.assertRaises(KeyError):
            sherd.spawn(2, train, timeout=60)
        self.assertIsInstance(seen[0], KeyError)
        self.assertIn("no such layer", str(seen[1]))

    def test_bad_arguments(self) -> None:
        def refused(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (2,))
            with self.assertRaisesRegex(ValueError, "^Pipeline: no such schedule\n  schedule: 'zero'"):
                sherd.Pipeline(nn.Identity(), mesh, schedule="zero")
            pipeline = sherd.Pipeline(nn.Identity(), mesh, microbatches=5)
            with self.assertRaisesRegex(ValueError, "the batch does not divide into microbatches"):
                pipeline.step(INPUT, TARGET, loss_of)

        sherd.spawn(2, refused, timeout=60)

        def no_tensor(rank: int) -> Any:
            return sherd.Pipeline(lambda x: (x, x), sherd.init_device_mesh("cpu", (1,))).forward(INPUT)

        with self.assertRaisesRegex(TypeError, "^Pipeline: the stage returns something else than a tensor\n  returned: tuple"):
            sherd.spawn(1, no_tensor, timeout=60)

    def test_schedules(self) -> None:
        for schedule in ("1F1B", "GPipe"):
            for stage in range(3):
                actions = sherd.schedule_actions(schedule, 3, stage, 4)
                for kind in ("forward", "backward"):
                    self.assertEqual([m for k, m in actions if k == kind], [0, 1, 2, 3])
        self.assertEqual([k for k, _ in sherd.schedule_actions("GPipe", 3, 0, 4)], ["forward"] * 4 + ["backward"] * 4)


if __name__ == "__main__":
    unittest.main()
