"""parallelize_module: styles over modules of torch.nn, alone and beside data axes, give the numbers of one device."""

from __future__ import annotations

import copy
import unittest
from typing import Any

import torch

import sherd


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(10, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 12)
        self.down = torch.nn.Linear(12, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


PLAN = {"tokens": sherd.RowwiseParallel(), "up": sherd.ColwiseParallel(), "down": sherd.RowwiseParallel()}
SEQUENCE_PLAN = {
    "tokens": sherd.RowwiseParallel(output_layouts=sherd.Shard(1)),
    "norm": sherd.SequenceParallel(),
    "up": sherd.ColwiseParallel(),
    "down": sherd.RowwiseParallel(output_layouts=sherd.Shard(1)),
}


def ids(step: int) -> torch.Tensor:
    return (torch.arange(24) * 7 + step).remainder(10).view(4, 6)


def train(model: torch.nn.Module, place: Any) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        loss = model(place(ids(step))).pow(2).mean()
        loss.backward()
        sherd.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


class TensorParallel(unittest.TestCase):
    def test_training_is_that_of_one_device(self) -> None:
        torch.manual_seed(2)
        model = Block().double()
        expected = train(copy.deepcopy(model), lambda x: x)
        for plan in (PLAN, SEQUENCE_PLAN):
            for shape in ((2,), (3,)):
                copies = [copy.deepcopy(model) for _ in range(shape[0])]

                def run(rank: int, plan: Any = plan, shape: Any = shape, copies: Any = copies) -> list[float]:
                    mesh = sherd.init_device_mesh("cpu", shape, mesh_dim_names=("tp",))
                    sherd.parallelize_module(copies[rank], mesh, plan)
                    return train(copies[rank], lambda x: x)

                for losses in sherd.spawn(shape[0], run):
                    for got, wanted in zip(losses, expected):
                        self.assertAlmostEqual(got, wanted, places=10)

    def test_beside_a_data_axis(self) -> None:
        torch.manual_seed(2)
        model = Block().double()
        expected = train(copy.deepcopy(model), lambda x: x)
        for how in (sherd.data_parallel, sherd.fully_shard):
            copies = [copy.deepcopy(model) for _ in range(4)]

            def run(rank: int, how: Any = how, copies: Any = copies) -> list[float]:
                mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
                sherd.parallelize_module(copies[rank], mesh["tp"], SEQUENCE_PLAN)
                how(copies[rank], mesh["dp"])
                return train(copies[rank], lambda x: sherd.distribute_tensor(x, mesh["dp"], [sherd.Shard(0)]))

            for losses in sherd.spawn(4, run):
                for got, wanted in zip(losses, expected):
                    self.assertAlmostEqual(got, wanted, places=10)

    def test_modules_are_prepared(self) -> None:
        class Sum(torch.nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return x + y

        def run(rank: int) -> Any:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
            style = sherd.PrepareModuleInputOutput(
                input_layouts=(sherd.Shard(0), None),
                desired_input_layouts=(sherd.Replicate(), None),
                output_layouts=None,
                desired_output_layouts=sherd.Shard(0),
            )
            module = sherd.parallelize_module(Sum(), mesh, style)
            result = module(torch.full((2,), float(rank)), torch.ones(4))
            return sherd.placements(result), sherd.full_tensor(result).tolist()

        for where, values in sherd.spawn(2, run):
            self.assertEqual(where, (sherd.Shard(0),))
            self.assertEqual(values, [1.0, 1.0, 2.0, 2.0])

    def test_bad_plans_are_refused(self) -> None:
        mesh = sherd.init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
        with self.assertRaisesRegex(ValueError, "parallelize_module: the plan names no module\n  name: layers.*"):
            sherd.parallelize_module(Block(), mesh, {"layers.*": sherd.ColwiseParallel()})
        with self.assertRaisesRegex(ValueError, "ColwiseParallel takes Linear and Embedding\n  module: norm"):
            sherd.parallelize_module(Block(), mesh, {"norm": sherd.ColwiseParallel()})
        with self.assertRaisesRegex(TypeError, "a style is needed"):
            sherd.parallelize_module(Block(), mesh, {"norm": "colwise"})  # type: ignore[dict-item]
        block = sherd.parallelize_module(Block(), mesh, PLAN)
        with self.assertRaisesRegex(ValueError, "distributed already"):
            sherd.parallelize_module(block, mesh, PLAN)


if __name__ == "__main__":
    unittest.main()
