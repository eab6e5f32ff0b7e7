"""data_parallel and fully_shard train a module of Python's as one device does."""

from __future__ import annotations

import copy
import unittest
from typing import Any

import torch

import sherd


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 8)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(3))
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = (torch.arange(48, dtype=torch.float64) * 0.3 + step).sin().view(8, 6)
    return x, torch.arange(8) % 3


def train(model: torch.nn.Module, place: Any) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(place(x)), place(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class DataParallel(unittest.TestCase):
    def test_training_is_that_of_one_device(self) -> None:
        torch.manual_seed(1)
        model = Net().double()
        expected = train(copy.deepcopy(model), lambda x: x)
        for how in (sherd.data_parallel, sherd.fully_shard):
            for ranks in (1, 2, 3):
                copies = [copy.deepcopy(model) for _ in range(ranks)]

                def run(rank: int, how: Any = how, ranks: int = ranks, copies: Any = copies) -> list[float]:
                    mesh = sherd.init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
                    how(copies[rank], mesh)
                    return train(copies[rank], lambda x: sherd.distribute_tensor(x, mesh, [sherd.Shard(0)]))

                for losses in sherd.spawn(ranks, run):
                    for got, wanted in zip(losses, expected):
                        self.assertAlmostEqual(got, wanted, places=10)

    def test_gradients_wait_in_no_sync(self) -> None:
        def run(rank: int) -> tuple[Any, Any, float]:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
            model = torch.nn.Linear(6, 2).double()
            sync = sherd.data_parallel(model, mesh)
            x = sherd.distribute_tensor(batch(0)[0], mesh, [sherd.Shard(0)])
            with sync.no_sync():
                model(x).sum().backward()
                waiting = sherd.placements(model.weight.grad)
            model(x).sum().backward()
            return waiting, sherd.placements(model.weight.grad), sherd.full_tensor(model.bias.grad)[0].item()

        for waiting, there, bias in sherd.spawn(2, run):
            self.assertEqual(waiting, (sherd.Partial(),))
            self.assertEqual(there, (sherd.Replicate(),))
            self.assertEqual(bias, 16.0)

    def test_something_else_than_a_module_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "fully_shard: a torch.nn.Module is needed"):
            sherd.fully_shard(torch.ones(3), sherd.init_device_mesh("cpu", (1,)))  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
