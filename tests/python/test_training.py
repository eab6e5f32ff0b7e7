"""What a training loop needs beside its modules: the same results as one device, on several meshes."""

from __future__ import annotations

import unittest
from typing import Any

import torch

import sherd

F = torch.nn.functional


def one_device(values: torch.Tensor) -> torch.Tensor:
    return values.clone().requires_grad_()


def numbers(*shape: int) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return (torch.arange(count, dtype=torch.float64) * 0.7).sin().view(shape)


class Recompute(unittest.TestCase):
    def test_values_and_gradients_of_one_device(self) -> None:
        x, w = numbers(5, 4), numbers(4, 6)

        def block(x: torch.Tensor, w: torch.Tensor, power: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
            y = (x @ w).tanh() ** power
            return y, y.sum(0)

        def loss(x: torch.Tensor, w: torch.Tensor, run: Any) -> torch.Tensor:
            y, total = run(block, x, w, power=2)
            return (y * y).sum() + total.exp().sum()

        a, b = one_device(x), one_device(w)
        expected = loss(a, b, lambda fn, *args, **more: fn(*args, **more))
        expected.backward()

        def on_ranks(rank: int) -> tuple[torch.Tensor, ...]:
            mesh = sherd.init_device_mesh("cpu", (3,))
            c = sherd.distribute_tensor(x, mesh, [sherd.Shard(0)]).requires_grad_()
            d = sherd.distribute_tensor(w, mesh, [sherd.Shard(1)]).requires_grad_()
            value = loss(c, d, sherd.recompute)
            value.backward()
            return tuple(sherd.full_tensor(t).detach() for t in (value, c.grad, d.grad))

        for got in sherd.spawn(3, on_ranks):
            for one, other in zip(got, (expected, a.grad, b.grad)):
                torch.testing.assert_close(one, other.detach(), rtol=0, atol=1e-10)

    def test_the_second_run_draws_the_same_numbers(self) -> None:
        def on_ranks(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
            mesh = sherd.init_device_mesh("cpu", (2,))
            sherd.manual_seed(3)
            x = sherd.distribute_tensor(torch.ones(64), mesh, [sherd.Shard(0)]).requires_grad_()
            y = sherd.recompute(lambda t: F.dropout(t * t, 0.5), x)
            y.sum().backward()
            return sherd.full_tensor(y).detach(), sherd.full_tensor(x.grad)

        value, grad = sherd.spawn(2, on_ranks)[0]
        self.assertTrue(0 < int((value == 0).sum()) < 64)
        torch.testing.assert_close(grad, value * 2)  # the gradient of t * t, dropped where the value is

    def test_what_is_no_tensor_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "^recompute: the function returns something else than tensors"):
            sherd.recompute(lambda t: 3, torch.ones(2, requires_grad=True))


class LocalMap(unittest.TestCase):
    def test_values_and_gradients_of_one_device(self) -> None:
        x, w = numbers(7, 4), numbers(4, 3)
        a, b = one_device(x), one_device(w)
        (a @ b).tanh().sum().backward()

        def on_ranks(rank: int) -> tuple[torch.Tensor, ...]:
            mesh = sherd.init_device_mesh("cpu", (3,))
            rows, whole = [sherd.Shard(0)], [sherd.Replicate()]
            fn = sherd.local_map(lambda x, w, scale: ((x @ w).tanh() * scale, x), [rows, rows], [rows, whole, None],
                                 device_mesh=mesh, redistribute_inputs=True)
            c = sherd.distribute_tensor(x, mesh, rows).requires_grad_()
            d = sherd.distribute_tensor(w, mesh, [sherd.Shard(1)]).requires_grad_()
            y, same = fn(c, d, 1.0)
            y.sum().backward()
            return tuple(sherd.full_tensor(t).detach() for t in (y, same, c.grad, d.grad))

        for got in sherd.spawn(3, on_ranks):
            for one, other in zip(got, ((a @ b).tanh(), x, a.grad, b.grad)):
                torch.testing.assert_close(one, other.detach(), rtol=0, atol=1e-10)

    def test_other_placements_are_refused(self) -> None:
        with sherd.fake_world(0, 2):
            mesh = sherd.init_device_mesh("cpu", (2,))
            fn = sherd.local_map(lambda x: x, [[sherd.Shard(0)]], [[sherd.Shard(0)]], device_mesh=mesh)
            x = sherd.zeros(4, 4, device_mesh=mesh, placements=[sherd.Shard(1)])
            with self.assertRaisesRegex(ValueError, "^local_map: "):
                fn(x)
            with self.assertRaisesRegex(ValueError, "^local_map: "):
                fn(x, x)


class GradScaler(unittest.TestCase):
    def test_steps_of_one_device(self) -> None:
        x = numbers(6, 4)

        def train(w: torch.Tensor, scaler: torch.amp.GradScaler) -> list[float]:
            optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
            scales = []
            for step in range(4):
                optimizer.zero_grad()
                loss = (w * x).square().sum() * (float("inf") if step == 1 else 1.0)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            return scales

        options: dict[str, Any] = {"init_scale": 8.0, "growth_interval": 2}
        a = one_device(x)
        expected = train(a, torch.amp.GradScaler("cpu", **options))

        def on_ranks(rank: int) -> tuple[list[float], torch.Tensor]:
            mesh = sherd.init_device_mesh("cpu", (2, 2))
            w = sherd.distribute_tensor(x, mesh, [sherd.Shard(0), sherd.Replicate()]).requires_grad_()
            return train(w, sherd.GradScaler("cpu", **options)), sherd.full_tensor(w).detach()

        for scales, w in sherd.spawn(4, on_ranks):
            self.assertEqual(scales, expected)
            torch.testing.assert_close(w, a.detach(), rtol=0, atol=1e-10)

    def test_one_rank_with_an_infinity_stops_all(self) -> None:
        def on_ranks(rank: int) -> tuple[bool, float]:
            mesh = sherd.init_device_mesh("cpu", (3,))
            w = sherd.distribute_tensor(torch.ones(5), mesh, [sherd.Shard(0)]).requires_grad_()
            optimizer, scaler = torch.optim.SGD([w], lr=1.0), sherd.GradScaler("cpu", init_scale=4.0)
            scaler.scale((w * torch.tensor([1.0, 1, 1, 1, float("nan")])).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            return sherd.full_tensor(w.detach()).equal(torch.ones(5)), scaler.get_scale()

        self.assertEqual(sherd.spawn(3, on_ranks), [(True, 2.0)] * 3)


class Averages(unittest.TestCase):
    def test_averages_of_one_device(self) -> None:
        def run(w: torch.Tensor) -> torch.Tensor:
            average = sherd.ExponentialMovingAverage([w], decay=0.75)
            for step in range(3):
                with torch.no_grad():
                    w.mul_(1.5 + step)
                average.update()
            before = w.detach().clone()
            with average.applied():
                applied = w.detach().clone()
                with self.assertRaises(RuntimeError):
                    average.update()
            assert bool((w.detach() == before).all()) and average.updates == 3
            return applied

        expected = run(torch.nn.Parameter(numbers(5, 3)))

        def on_ranks(rank: int) -> torch.Tensor:
            mesh = sherd.init_device_mesh("cpu", (3,))
            return sherd.full_tensor(run(sherd.distribute_tensor(numbers(5, 3), mesh, [sherd.Shard(0)])))

        for got in sherd.spawn(3, on_ranks):
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


class Sampler(unittest.TestCase):
    def test_ranks_together_read_the_batches_of_one(self) -> None:
        def epochs(ranks: int, batch: int) -> list[list[list[list[int]]]]:
            def on_ranks(rank: int) -> list[list[list[int]]]:
                mesh = sherd.init_device_mesh("cpu", (ranks,))
                sampler = sherd.ShardedSampler(range(24), mesh, batch_size=batch, seed=5)
                read = [list(sampler), list(sampler)]
                assert [len(epoch) for epoch in read] == [len(sampler)] * 2
                return read

            return sherd.spawn(ranks, on_ranks)

        one, four = epochs(1, 8)[0], epochs(4, 2)
        for epoch in range(2):
            together = [sum((four[rank][epoch][k] for rank in range(4)), []) for k in range(3)]
            self.assertEqual(together, one[epoch])
            self.assertEqual(sorted(sum(together, [])), list(range(24)))
        self.assertNotEqual(one[0], one[1])

    def test_uneven_ends_and_resume(self) -> None:
        with sherd.fake_world(1, 3):
            mesh = sherd.init_device_mesh("cpu", (3,))
            padded = sherd.ShardedSampler(10, mesh, batch_size=3, shuffle=False)
            dropped = sherd.ShardedSampler(10, mesh, batch_size=3, shuffle=False, drop_last=True)
            self.assertEqual((sum(map(len, padded)), sum(map(len, dropped))), (4, 3))
            self.assertEqual((len(padded), len(dropped)), (2, 1))
            sampler = sherd.ShardedSampler(24, mesh, batch_size=2)
            whole = list(sampler)
            again = sherd.ShardedSampler(24, mesh, batch_size=2)
            batches = iter(again)
            self.assertEqual([next(batches), next(batches)], whole[:2])
            rest = sherd.ShardedSampler(24, mesh, batch_size=2)
            rest.load_state_dict(again.state_dict())
            self.assertEqual(list(rest), whole[2:])
            sampler.set_epoch(0)
            self.assertEqual(list(sampler), whole)

    def test_a_loader_takes_it(self) -> None:
        data = torch.utils.data.TensorDataset(torch.arange(8))
        with sherd.fake_world(1, 2):
            mesh = sherd.init_device_mesh("cpu", (2,))
            sampler = sherd.ShardedSampler(data, mesh, batch_size=2, shuffle=False)
            loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
            self.assertEqual([batch.tolist() for (batch,) in loader], [[2, 3], [6, 7]])


class Scopes(unittest.TestCase):
    def test_context_parallel(self) -> None:
        q, k, v = (numbers(1, 2, 8, 4) + i for i in range(3))
        for method in ("ring", "all_to_all"):
            a = [one_device(t) for t in (q, k, v)]
            expected = F.scaled_dot_product_attention(*a, is_causal=True)
            (expected * numbers(*expected.shape)).sum().backward()

            def on_ranks(rank: int) -> list[torch.Tensor]:
                mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("cp",))
                b = [sherd.context_parallel_shard(t, mesh, 2).detach().requires_grad_() for t in (q, k, v)]
                with sherd.ContextParallel(mesh, method=method):
                    out = F.scaled_dot_product_attention(*b, is_causal=True)
                    (out * numbers(*expected.shape)).sum().backward()
                return [sherd.full_tensor(t).detach() for t in (out, *(t.grad for t in b))]

            for got in sherd.spawn(2, on_ranks):
                for one, other in zip(got, (expected, *(t.grad for t in a))):
                    torch.testing.assert_close(one, other.detach(), rtol=0, atol=1e-10)
        with sherd.fake_world(0, 1):
            with self.assertRaisesRegex(ValueError, "^ContextParallel: no such method"):
                sherd.ContextParallel(sherd.init_device_mesh("cpu", (1,)), method="star")

    def test_loss_parallel_refuses_what_would_gather(self) -> None:
        def on_ranks(rank: int) -> str:
            mesh = sherd.init_device_mesh("cpu", (2,))
            logits = sherd.distribute_tensor(numbers(4, 6), mesh, [sherd.Shard(1)])
            target = torch.arange(4)
            with sherd.LossParallel():
                torch.testing.assert_close(sherd.full_tensor(F.cross_entropy(logits, target)),
                                           F.cross_entropy(numbers(4, 6), target))
                try:
                    F.multi_margin_loss(logits, target)
                except ValueError as error:
                    return str(error).splitlines()[0]
            return "no error"

        texts = sherd.spawn(2, on_ranks)
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], "no error")

    def test_sharded_init(self) -> None:
        def on_ranks(rank: int) -> tuple[Any, ...]:
            mesh = sherd.init_device_mesh("cpu", (2,))
            sherd.manual_seed(1)
            with sherd.ShardedInit(mesh):
                layer = torch.nn.Linear(4, 6)
            outside = torch.nn.Linear(4, 6)
            return sherd.placements(layer.weight), sherd.is_dtensor(outside.weight), sherd.full_tensor(layer.weight).detach()

        for placements, outside, weight in sherd.spawn(2, on_ranks):
            self.assertEqual((placements, outside), ((sherd.Shard(0),), False))
            self.assertTrue(0 < float(weight.abs().max()) <= 0.5)  # kaiming_uniform_ has drawn on it


class Experts(unittest.TestCase):
    def test_values_and_gradients_of_one_device(self) -> None:
        x, w, weights = numbers(6, 3), numbers(4, 3, 3), numbers(6, 2)
        chosen = torch.tensor([[0, 1], [2, 3], [3, 0], [1, 2], [0, 3], [2, 1]])
        a, b, c = one_device(x), one_device(w), one_device(weights)
        expected = torch.stack([sum(c[t, j] * (a[t] @ b[chosen[t, j]]) for j in range(2)) for t in range(6)])
        (expected ** 2).sum().backward()

        def run(batch: sherd.ExpertBatch) -> torch.Tensor:
            return torch.cat([batch.tokens_of(i) @ batch.parameters[0][i] for i in range(len(batch))])

        def on_ranks(rank: int) -> list[torch.Tensor]:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("ep",))
            d, e, f = (sherd.distribute_tensor(t, mesh, [sherd.Shard(0)]).requires_grad_() for t in (x, w, weights))
            y = sherd.expert_parallel(d, sherd.distribute_tensor(chosen, mesh, [sherd.Shard(0)]), f, mesh, 4, run,
                                      parameters=[e])
            (y ** 2).sum().backward()
            return [sherd.full_tensor(t).detach() for t in (y, d.grad, e.grad, f.grad)]

        for got in sherd.spawn(2, on_ranks):
            for one, other in zip(got, (expected, a.grad, b.grad, c.grad)):
                torch.testing.assert_close(one, other.detach(), rtol=0, atol=1e-10)


class Optimizers(unittest.TestCase):
    def test_fused_and_foreach_steps_are_those_of_one_device(self) -> None:
        values, gradients = numbers(5, 4), [numbers(5, 4) * k for k in (1, 2, 3)]
        kinds: list[tuple[Any, dict[str, Any]]] = [
            (torch.optim.AdamW, {"amsgrad": True}),
            (torch.optim.Adam, {}),
            (torch.optim.SGD, {"momentum": 0.9}),
        ]
        for kind, options in kinds:
            alone = one_device(values)
            for_one = kind([alone], lr=0.1, foreach=False, fused=False, **options)
            for gradient in gradients:
                alone.grad = gradient.clone()
                for_one.step()

            def on_ranks(rank: int) -> list[torch.Tensor]:
                mesh = sherd.init_device_mesh("cpu", (3,))
                results = []
                for way in ({"fused": True}, {"foreach": True}):
                    mine = sherd.distribute_tensor(values, mesh, [sherd.Shard(0)]).requires_grad_()
                    optimizer = kind([mine], lr=0.1, **way, **options)
                    for gradient in gradients:
                        mine.grad = sherd.distribute_tensor(gradient, mesh, [sherd.Shard(0)])
                        optimizer.step()
                    results.append(sherd.full_tensor(mine).detach())
                return results

            for results in sherd.spawn(3, on_ranks):
                for got in results:
                    torch.testing.assert_close(got, alone.detach(), rtol=0, atol=1e-10)


if __name__ == "__main__":
    unittest.main()
