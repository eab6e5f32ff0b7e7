"""The Python package in one process, with ranks as threads: what a user of torch would try first."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import unittest
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import sherd
from sherd import Partial, Replicate, Shard


def on_mesh(*shape: int, names: tuple[str, ...] | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test runs on every rank of a mesh, each a thread."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(self: unittest.TestCase) -> None:
            def rank_main(rank: int) -> None:
                test(self, sherd.init_device_mesh("cpu", shape, mesh_dim_names=names), rank)

            n = 1
            for size in shape:
                n *= size
            sherd.spawn(n, rank_main, timeout=60)

        run.__name__ = test.__name__
        return run

    return decorate


def numbered(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    n = 1
    for size in shape:
        n *= size
    return torch.arange(n, dtype=dtype).reshape(shape)


class Tensors(unittest.TestCase):
    @on_mesh(4)
    def test_round_trip(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        whole = numbered(10, 3)
        x = sherd.distribute_tensor(whole, mesh, [Shard(0)])
        self.assertIs(type(x), torch.Tensor)
        self.assertTrue(sherd.is_dtensor(x))
        self.assertEqual(x.shape, (10, 3))
        self.assertEqual(sherd.placements(x), (Shard(0),))
        self.assertEqual(sherd.device_mesh(x), mesh)
        self.assertTrue(torch.equal(sherd.full_tensor(x), whole))
        self.assertTrue(torch.equal(sherd.to_local(x), whole[3 * rank : 3 * rank + 3]))
        back = sherd.from_local(sherd.to_local(x), mesh, [Shard(0)])
        self.assertTrue(torch.equal(sherd.full_tensor(back), whole))
        columns = sherd.redistribute(x, mesh, [Shard(1)])
        self.assertEqual(sherd.to_local(columns).shape[0], 10)
        self.assertTrue(torch.equal(sherd.full_tensor(columns), whole))

    @on_mesh(2, 2, names=("dp", "tp"))
    def test_placements_of_torch_are_taken(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        from torch.distributed import tensor as theirs

        x = sherd.distribute_tensor(numbered(4, 4), mesh, [theirs.Shard(1), theirs.Replicate()])
        self.assertEqual(sherd.placements(x), (Shard(1), Replicate()))
        with mesh:
            y = sherd.ones(4, 4, placements=[theirs.Partial(), theirs.Shard(0)])
        self.assertEqual(sherd.placements(y), (Partial("sum"), Shard(0)))

    @on_mesh(4)
    def test_factories(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        where = {"device_mesh": mesh, "placements": [Shard(0)]}
        self.assertTrue(torch.equal(sherd.full_tensor(sherd.zeros(6, 2, **where)), torch.zeros(6, 2)))
        self.assertTrue(torch.equal(sherd.full_tensor(sherd.ones((6, 2), **where)), torch.ones(6, 2)))
        self.assertTrue(torch.equal(sherd.full_tensor(sherd.full((6,), 2.5, **where)), torch.full((6,), 2.5)))
        self.assertTrue(torch.equal(sherd.full_tensor(sherd.arange(1, 12, 2, **where)), torch.arange(1, 12, 2)))
        self.assertEqual(sherd.empty(6, dtype=torch.int64, **where).dtype, torch.int64)
        self.assertTrue(sherd.rand(6, requires_grad=True, **where).requires_grad)
        self.assertEqual(sherd.randn(9, **where).shape, (9,))

    @on_mesh(2, 2, names=("dp", "tp"))
    def test_autograd(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        a, b = numbered(5, 4).requires_grad_(), numbered(4, 6).requires_grad_()
        torch.relu(a @ b).pow(2).mean().backward()
        x = sherd.distribute_tensor(a.detach(), mesh, [Shard(0), Replicate()]).requires_grad_()
        y = sherd.distribute_tensor(b.detach(), mesh, [Replicate(), Shard(1)]).requires_grad_()
        torch.relu(x @ y).pow(2).mean().backward()
        self.assertEqual(sherd.placements(x.grad), sherd.placements(x))
        torch.testing.assert_close(sherd.full_tensor(x.grad), a.grad)
        torch.testing.assert_close(sherd.full_tensor(y.grad), b.grad)

    @on_mesh(4)
    def test_python_autograd_function_and_hooks(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x * 2

            @staticmethod
            def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
                return grad * 2

        seen = []
        x = sherd.distribute_tensor(numbered(6), mesh, [Shard(0)]).requires_grad_()
        x.register_hook(lambda grad: seen.append(sherd.is_dtensor(grad)))
        Twice.apply(x).sum().backward()
        self.assertEqual(seen, [True])
        self.assertTrue(torch.equal(sherd.full_tensor(x.grad), torch.full((6,), 2.0)))

    @on_mesh(2)
    def test_hooks_of_leaves_stay_beside_sherds_own(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        rows = sherd.distribute_tensor(numbered(6), mesh, [Shard(0)])
        for before in (True, False):
            seen = []
            x = sherd.distribute_tensor(numbered(6), mesh, [Replicate()]).requires_grad_()
            if not before:
                (x * 2).sum()
            x.register_hook(lambda grad: seen.append(sherd.placements(grad)))
            for _ in range(2):
                (x * rows).sum().backward()
            self.assertEqual(seen, [(Replicate(),)] * 2)
            self.assertEqual(sherd.placements(x.grad), (Replicate(),))
            torch.testing.assert_close(sherd.full_tensor(x.grad), numbered(6) * 2)

    @on_mesh(2)
    def test_hooks_between_use_and_backward_leave_sherds_own(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        rows = sherd.distribute_tensor(numbered(6), mesh, [Shard(0)])
        x = sherd.distribute_tensor(numbered(6), mesh, [Replicate()]).requires_grad_()
        plain = numbered(6).requires_grad_()
        loss = (x * rows).sum() + (plain * rows).sum()
        for leaf in (x, plain):
            leaf.register_hook(lambda grad, leaf=leaf: grad + (leaf * rows) * 0)  # it may use the leaf
        loss.backward()
        self.assertEqual(sherd.placements(x.grad), (Replicate(),))
        torch.testing.assert_close(sherd.full_tensor(x.grad), numbered(6))
        self.assertFalse(sherd.is_dtensor(plain.grad))
        torch.testing.assert_close(plain.grad, numbered(6))

    @on_mesh(3)
    def test_indexing_holds_no_lock(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        # torch keeps the interpreter's lock while it takes a row: sherd must let the other ranks have it.
        x = sherd.distribute_tensor(numbered(7, 2), mesh, [Shard(0)])
        self.assertEqual([x[i, 1].item() for i in range(7)], [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0])
        x[2:4] = 0
        self.assertEqual(x.sum().item(), 91 - 4 - 5 - 6 - 7)

    @on_mesh(2, 2, names=("dp", "tp"))
    def test_module_trains_as_on_one_device(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        torch.manual_seed(0)
        one = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).double()
        torch.manual_seed(0)
        model = copy.deepcopy(one)
        with torch.no_grad():
            for mine, other in zip(model.parameters(), one.parameters(), strict=True):
                values = torch.linspace(-1, 1, other.numel(), dtype=torch.float64).reshape(other.shape)
                mine.copy_(values)
                other.copy_(values)

        def partition(name: str, module: nn.Module, mesh: sherd.DeviceMesh) -> None:
            if name == "0":
                sherd.distribute_parameter_(module.weight, mesh, [Replicate(), Shard(0)])
                sherd.distribute_parameter_(module.bias, mesh, [Replicate(), Shard(0)])

        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # made before: it sees the same parameters
        sherd.distribute_module(model, mesh, partition)
        reference = torch.optim.AdamW(one.parameters(), lr=1e-2)
        for step in range(4):
            data = torch.sin(numbered(6, 8, dtype=torch.float64) + step)
            target = numbered(6, dtype=torch.int64) % 4
            loss = nn.functional.cross_entropy(
                model(sherd.distribute_tensor(data, mesh, [Shard(0), Replicate()])),
                sherd.distribute_tensor(target, mesh, [Shard(0), Replicate()]),
            )
            expected = nn.functional.cross_entropy(one(data), target)
            for each, value in ((optimizer, loss), (reference, expected)):
                each.zero_grad()
                value.backward()
                each.step()
            self.assertAlmostEqual(loss.item(), expected.item(), places=10)
        copied = copy.deepcopy(model)
        self.assertEqual(sherd.placements(copied[0].weight), (Replicate(), Shard(0)))
        self.assertIsInstance(copied[0].weight, nn.Parameter)

    @on_mesh(2)
    def test_module_hooks(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        model = sherd.distribute_module(
            nn.Linear(4, 4),
            mesh,
            input_fn=lambda module, inputs, mesh: (sherd.distribute_tensor(inputs[0], mesh, [Shard(0)]),),
            output_fn=lambda module, outputs, mesh: sherd.full_tensor(outputs),
        )
        self.assertFalse(sherd.is_dtensor(model(torch.ones(4, 4))))

    @on_mesh(2)
    def test_printing(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        x = sherd.distribute_tensor(numbered(3, 2), mesh, [Shard(0)])
        expected = [
            "DTensor(f32[3@0, 2] on [2], rank 0 holds [0:2, 0:2]:\ntensor([[0., 1.],\n        [2., 3.]]))",
            "DTensor(f32[3@0, 2] on [2], rank 1 holds [2:3, 0:2]:\ntensor([[4., 5.]]))",
        ][rank]
        self.assertEqual(repr(x), expected)
        self.assertEqual(f"{x}", expected)
        self.assertIn("requires_grad=True", repr(x.clone().requires_grad_()))
        self.assertIn("grad_fn=<MulBackward0>", repr(x.clone().requires_grad_() * 2))
        self.assertTrue(repr(nn.Parameter(x)).startswith("Parameter containing:\nDTensor("))
        self.assertEqual(repr(torch.ones(1)), "tensor([1.])")

    @on_mesh(2)
    def test_deepcopy(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        x = sherd.distribute_tensor(numbered(4), mesh, [Shard(0)]).requires_grad_()
        (x * x).sum().backward()
        both = copy.deepcopy([x, x])
        self.assertIs(both[0], both[1])
        self.assertTrue(both[0].requires_grad)
        self.assertTrue(torch.equal(sherd.full_tensor(both[0].grad), sherd.full_tensor(x.grad)))
        with torch.no_grad():
            both[0].add_(1)
        self.assertTrue(torch.equal(sherd.full_tensor(x.detach()), numbered(4)))

    @on_mesh(2)
    def test_compile_with_the_eager_backend(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        model = sherd.distribute_module(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), mesh)
        x = sherd.distribute_tensor(numbered(6, 4), mesh, [Shard(0)])

        @torch.compile(backend="eager")
        def step(x: torch.Tensor) -> torch.Tensor:
            y = model(sherd.redistribute(x, placements=[Shard(0)]))
            return y * 2 if y.sum() > 0 else y - 1

        y = model(x)
        expected = sherd.full_tensor(y * 2 if y.sum() > 0 else y - 1)
        result = step(x)
        self.assertTrue(sherd.is_dtensor(result))
        torch.testing.assert_close(sherd.full_tensor(result), expected)


class Values(unittest.TestCase):
    def test_placements(self) -> None:
        for placement in (Replicate(), Shard(1), Partial("max"), sherd.StridedShard(0, 2), sherd.Ragged(0, [0, 2, 5])):
            self.assertEqual(pickle.loads(pickle.dumps(placement)), placement)
            self.assertEqual(eval(repr(placement), vars(sherd)), placement)
            self.assertEqual(hash(placement), hash(copy.copy(placement)))
        self.assertNotEqual(Shard(0), Replicate())
        self.assertTrue(Shard(1).is_shard(1) and not Shard(1).is_shard(0))

    def test_layouts(self) -> None:
        layout = sherd.Layout(sherd.Mesh("[dp=2, tp=2]"), (5, 4), [Shard(0), Shard(1)])
        self.assertEqual([layout.local_shape(rank) for rank in range(4)], [(3, 2), (3, 2), (2, 2), (2, 2)])
        boxes = [box for rank in range(4) for box in layout.boxes(rank)]
        sherd.check_tiling(boxes, (5, 4))
        with self.assertRaisesRegex(ValueError, "leave a hole"):
            sherd.check_tiling(boxes[:3], (5, 4))
        self.assertEqual((layout.local_offset(3), layout.global_row(3, 0, 1)), ((3, 2), 4))
        self.assertIn("<svg", layout.svg())
        self.assertIn("weights", sherd.draw_html([("weights", layout)]))

    def test_mesh(self) -> None:
        with sherd.fake_world(5, 8):
            mesh = sherd.DeviceMesh("cpu", [[0, 1, 2, 3], [4, 5, 6, 7]], mesh_dim_names=("dp", "tp"))
            self.assertEqual(mesh, sherd.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp")))
            self.assertEqual(mesh.shape, (2, 4))
            self.assertEqual(mesh.mesh.tolist(), [[0, 1, 2, 3], [4, 5, 6, 7]])
            self.assertEqual(mesh["dp"].ranks, [1, 5])
            self.assertEqual(mesh["dp", "tp"], mesh)
            self.assertEqual(mesh.get_group("tp").ranks, [4, 5, 6, 7])
            self.assertEqual(mesh.get_local_rank("tp"), 1)
            self.assertEqual((mesh.size(), mesh.size("tp")), (8, 4))
            self.assertEqual(mesh.flatten("all").shape, (8,))
            groups = [mesh.get_group("dp"), mesh.get_group("tp")]
            self.assertEqual(sherd.DeviceMesh.from_group(groups, "cpu", mesh.mesh).shape, (2, 4))
            self.assertEqual(sherd.DeviceMesh.from_group(groups[1], "cpu", mesh_dim_names=("x",)).ranks, [4, 5, 6, 7])

    def test_explain(self) -> None:
        answer = sherd.explain("mm", "f32[64, 32@tp]", "f32[32@tp, 16]", mesh="[dp=2, tp=4]")
        self.assertEqual(answer.bytes, 0)
        self.assertEqual(answer.outputs, ["f32[64, 16] P(sum)@tp"])
        self.assertIn("mm", str(answer))
        self.assertEqual(sherd.rules_of("mm"), ["i k, k j -> i j            | reduce k, linear 0 1"])
        self.assertEqual(sherd.rules_of("no_such_operator"), [])
        with sherd.fake_world(0, 4):
            mesh = sherd.init_device_mesh("cpu", (4,))
            x = sherd.zeros(8, 8, device_mesh=mesh, placements=[Shard(1)])
            self.assertGreater(sherd.explain("sort", x, dim=1, outputs=2).bytes, 0)
            found = sherd.explain("max", x, dim=1)
            self.assertEqual(found.exchanges, [("all_gather@0 of one candidate per rank", 3 * 8 * (4 + 8))])
            self.assertEqual(found.bytes, found.least_bytes)
            self.assertEqual(found.bytes, found.exchanges[0][1])
            self.assertEqual(sherd.explain("relu", x).along, "")

    def test_register_rule(self) -> None:
        library = torch.library.Library("sherd_python_test", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        sherd.register_rule("sherd_python_test::twice", "* -> *")
        with self.assertRaisesRegex(ValueError, "help: "):
            sherd.register_rule("sherd_python_test::twice", "i ->-> j")

        def run(rank: int) -> Any:
            mesh = sherd.init_device_mesh("cpu", (2,))
            x = sherd.distribute_tensor(numbered(4), mesh, [Shard(0)])
            with sherd.CommRecorder() as recorder:
                y = torch.ops.sherd_python_test.twice(x)
            return sherd.placements(y), len(recorder.calls), sherd.full_tensor(y).tolist()

        self.assertEqual(sherd.spawn(2, run)[1], ((Shard(0),), 0, [0.0, 2.0, 4.0, 6.0]))

    def test_agree(self) -> None:
        def run(rank: int) -> str:
            def check() -> None:
                if rank == 2:
                    raise ValueError("not me")

            try:
                sherd.agree(sherd.init().group(), "load", check)
            except ValueError as error:
                return str(error)
            return "agreed"

        said = sherd.spawn(3, run)
        self.assertEqual(len(set(said)), 1)
        self.assertIn("not me", said[0])

    def test_collectives(self) -> None:
        def run(rank: int) -> Any:
            group = sherd.init().group()
            total = torch.tensor([float(rank)])
            sherd.all_reduce(group, total).wait()
            out = torch.empty(4)
            with sherd.CommRecorder() as recorder:
                sherd.all_gather(group, out, torch.tensor([float(rank)])).wait()
            sherd.barrier(group)
            return total.item(), out.tolist(), sherd.all_gather_text(group, str(rank)), recorder.bytes

        self.assertEqual(sherd.spawn(4, run)[2], (6.0, [0.0, 1.0, 2.0, 3.0], ["0", "1", "2", "3"], 12))


class RandomNumbers(unittest.TestCase):
    @on_mesh(3)
    def test_operators_draw_by_place(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        sherd.manual_seed(7)
        generator = sherd.Generator(7)
        x = sherd.zeros(5, 4, device_mesh=mesh, placements=[Shard(0)])
        for draw in (
            lambda t, g: t.uniform_(-1, 1, generator=g),
            lambda t, g: t.normal_(generator=g),
            lambda t, g: torch.bernoulli(torch.full_like(t, 0.5), generator=g),
            lambda t, g: torch.rand_like(t, generator=g),
            lambda t, g: torch.multinomial(t.abs() + 1, 2, generator=g),
        ):
            expected = draw(torch.zeros(5, 4), generator)
            self.assertTrue(sherd.full_tensor(draw(x.clone().zero_(), None)).equal(expected))

    @on_mesh(2)
    def test_state_scope_and_modes(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        def draw() -> torch.Tensor:
            return sherd.full_tensor(sherd.randn(6, device_mesh=mesh, placements=[Shard(0)]))

        sherd.manual_seed(3)
        state = sherd.current_generator(mesh).get_state()
        first = draw()
        self.assertFalse(draw().equal(first))
        sherd.current_generator(mesh).set_state(state)
        self.assertTrue(draw().equal(first))
        with sherd.generator_scope(sherd.Generator(3)):
            self.assertTrue(draw().equal(first))
        sherd.manual_seed(11, mode="torch_exact")
        self.assertTrue(draw().equal(torch.randn(6, generator=torch.Generator().manual_seed(11))))
        sherd.manual_seed(5, device_mesh=mesh)
        self.assertEqual(sherd.current_generator(mesh).initial_seed(), 5)
        with self.assertRaisesRegex(ValueError, "manual_seed: no such mode\n  mode: 'other'\n  help: one of by_position"):
            sherd.manual_seed(1, mode="other")

    @on_mesh(2)
    def test_dropout_of_a_module(self, mesh: sherd.DeviceMesh, rank: int) -> None:
        sherd.manual_seed(3)
        x = sherd.ones(8, 8, device_mesh=mesh, placements=[Shard(0)], requires_grad=True)
        y = nn.Dropout(0.25)(x)
        y.sum().backward()
        self.assertTrue(sherd.full_tensor(x.grad).equal(sherd.full_tensor(y.detach())))


class Ranks(unittest.TestCase):
    def test_results_and_arguments(self) -> None:
        self.assertEqual(sherd.spawn(3, lambda rank, a, b: rank * a + b, 2, 1), [1, 3, 5])

    def test_first_failure_is_raised_and_stops_the_others(self) -> None:
        others: list[str] = []

        def run(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (3,))
            if rank == 1:
                raise KeyError("lost")
            try:
                sherd.full_tensor(sherd.zeros(6, device_mesh=mesh, placements=[Shard(0)]))
            except torch.distributed.DistBackendError as error:
                others.append(str(error))
                raise

        with self.assertRaises(KeyError) as caught:
            sherd.spawn(3, run, timeout=60)
        self.assertEqual(caught.exception.args, ("lost",))
        self.assertEqual(len(others), 2)
        for text in others:
            self.assertIn("rank 1 failed", text)
            self.assertIn("KeyError: 'lost'", text)

    def test_other_python_threads_go_on(self) -> None:
        counted = 0
        over = threading.Event()

        def count() -> None:
            nonlocal counted
            while not over.is_set():
                counted += 1

        thread = threading.Thread(target=count)
        thread.start()

        def run(rank: int) -> float:
            mesh = sherd.init_device_mesh("cpu", (4,))
            x = sherd.distribute_tensor(numbered(8), mesh, [Shard(0)])
            return sum((x * i).sum().item() for i in range(20))

        self.assertEqual(sherd.spawn(4, run), [28.0 * 190] * 4)
        over.set()
        thread.join()
        self.assertGreater(counted, 0)


class Remote(unittest.TestCase):
    def test_every_rank_fetches_from_every_other(self) -> None:
        def run(rank: int) -> None:
            sherd.init_rpc(name=f"trainer{rank}")
            self.assertTrue(sherd.has_rpc())
            self.assertEqual(sherd.rpc_names(), ["trainer0", "trainer1", "trainer2"])
            mine = nn.Parameter(torch.full((2, rank + 1), float(rank)))
            shared = sherd.share_tensors([mine, torch.tensor(rank)])
            for owner, theirs in enumerate(shared):
                self.assertEqual([t.owner for t in theirs], [owner, owner])
                self.assertEqual(repr(theirs[0]), f"RemoteTensor(of rank {owner})")
                got = theirs[0].to_here(timeout=30)
                self.assertTrue(torch.equal(got, torch.full((2, owner + 1), float(owner))))
                self.assertFalse(got.requires_grad)
                self.assertEqual(theirs[1].to_here().item(), owner)
            sherd.shutdown_rpc()
            self.assertFalse(sherd.has_rpc())

        sherd.spawn(3, run, timeout=60)

    def test_a_part_of_the_ranks_shares(self) -> None:
        def run(rank: int) -> list[int] | None:
            sherd.init_rpc()
            got = None
            if rank != 1:
                shared = sherd.share_tensors([torch.tensor(rank)], sherd.init().group([2, 0]))
                got = [int(theirs[0].to_here()) for theirs in shared]
            sherd.shutdown_rpc()
            return got

        self.assertEqual(sherd.spawn(3, run, timeout=60), [[2, 0], None, [2, 0]])

    def test_the_interpreter_runs_while_a_rank_waits(self) -> None:
        def run(rank: int) -> None:
            sherd.init_rpc(threads=1)
            # Agents let go of tensors that Python has, which needs the interpreter's lock.
            for i in range(30):
                shared = sherd.share_tensors([torch.full((1000,), i)])
                self.assertEqual(int(shared[1 - rank][0].to_here()[0]), i)
            sherd.shutdown_rpc()

        sherd.spawn(2, run, timeout=60)

    def test_nothing_need_be_shut_down(self) -> None:
        def run(rank: int) -> sherd.RemoteTensor:
            sherd.init_rpc()
            shared = sherd.share_tensors([torch.tensor(rank)])
            sherd.barrier(sherd.init().group())
            return shared[1 - rank][0]

        for handle in sherd.spawn(2, run, timeout=60):
            with self.assertRaisesRegex(RuntimeError, "to_here: RPC has ended on this rank\n"):
                handle.to_here()

    def test_before_it_is_started(self) -> None:
        def run(rank: int) -> str:
            with self.assertRaises(RuntimeError) as caught:
                sherd.rpc_names()
            return str(caught.exception)

        text = "rpc_names: the world has no RPC\n  rank: 0\n  help: sherd::init_rpc(world) on every rank, first"
        self.assertEqual(sherd.spawn(1, run), [text])


class BadInput(unittest.TestCase):
    """The whole text of each error, on every rank."""

    def check(self, kind: type[Exception], text: str, call: Callable[[sherd.DeviceMesh], Any]) -> None:
        def run(rank: int) -> tuple[type, str]:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
            try:
                call(mesh)
            except Exception as error:
                return type(error), str(error)
            return type(None), "no error"

        for got in sherd.spawn(2, run, timeout=60):
            self.assertEqual(got, (kind, text))

    def test_not_a_tensor(self) -> None:
        self.check(
            TypeError,
            "distribute_tensor: a torch.Tensor is needed\n  given: list\n  help: torch.as_tensor(value)",
            lambda mesh: sherd.distribute_tensor([1, 2], mesh, [Shard(0)]),  # type: ignore[arg-type]
        )

    def test_not_a_mesh(self) -> None:
        self.check(
            TypeError,
            "zeros: a sherd.DeviceMesh is needed\n  given: str\n"
            '  help: mesh = sherd.init_device_mesh("cpu", (4,))',
            lambda mesh: sherd.zeros(2, device_mesh="cpu"),  # type: ignore[arg-type]
        )

    def test_not_a_placement(self) -> None:
        self.check(
            TypeError,
            "distribute_tensor: this is no placement\n  given: 0 (int)\n"
            "  help: [sherd.Shard(0), sherd.Replicate()]: one placement for each mesh axis",
            lambda mesh: sherd.distribute_tensor(torch.ones(2), mesh, [0]),  # type: ignore[list-item]
        )

    def test_distributed_already(self) -> None:
        self.check(
            ValueError,
            "distribute_tensor: the tensor is distributed already\n  tensor: f32[2] on [dp=2]\n"
            "  help: sherd.redistribute(tensor, placements=placements)",
            lambda mesh: sherd.distribute_tensor(sherd.ones(2, device_mesh=mesh), mesh, [Shard(0)]),
        )

    def test_not_distributed(self) -> None:
        self.check(
            ValueError,
            "full_tensor: the tensor is not distributed\n  tensor: f32[2]\n"
            "  help: sherd.distribute_tensor(tensor, mesh, [sherd.Replicate()])",
            lambda mesh: sherd.full_tensor(torch.ones(2)),
        )

    def test_too_many_placements(self) -> None:
        self.check(
            ValueError,
            "distribute_tensor: 2 placements for a mesh of 1 axis\n  placements: (S(0), R)\n  mesh: [dp=2]\n"
            "  help: distribute_tensor(x, mesh, {Shard(0)})",
            lambda mesh: sherd.distribute_tensor(torch.ones(2), mesh, [Shard(0), Replicate()]),
        )

    def test_two_meshes(self) -> None:
        def call(mesh: sherd.DeviceMesh) -> torch.Tensor:
            other = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
            return sherd.ones(2, device_mesh=mesh) + sherd.ones(2, device_mesh=other)

        self.check(
            ValueError,
            "add: operands live on different meshes\n  one: f32[2] on [dp=2]\n  other: f32[2] on [tp=2]\n"
            "  help: sherd::distribute_tensor(sherd::full_tensor(other), sherd::mesh_of(one), {Replicate()})",
            call,
        )

    def test_a_mesh_before_there_are_ranks(self) -> None:
        def call(mesh: sherd.DeviceMesh) -> sherd.DeviceMesh:
            return sherd.init_device_mesh("cpu", (8,))

        self.check(
            ValueError,
            "init_device_mesh: the mesh is larger than the world\n  mesh: [8] needs rank 7\n  world: 2 ranks\n"
            "  help: start more ranks: sherd run -n 8 -- ./program, or sherd::spawn(8, fn)",
            call,
        )

    def test_data_of_one_process(self) -> None:
        whole = "sherd.full_tensor(tensor) for all of it, sherd.to_local(tensor) for this rank's part"
        part = f"a rank has only its part of a DTensor\n  tensor: f32[2@dp] on [dp=2]\n  help: {whole}"

        def x(mesh: sherd.DeviceMesh) -> torch.Tensor:
            return sherd.ones(2, device_mesh=mesh, placements=[Shard(0)])

        self.check(NotImplementedError, f"numpy: {part}", lambda mesh: x(mesh).numpy())
        self.check(NotImplementedError, f"tolist: {part}", lambda mesh: x(mesh).tolist())
        text = f"pickle: a DTensor is no object of one process\n  tensor: f32[2@dp] on [dp=2]\n  help: {whole}"
        self.check(NotImplementedError, text, lambda mesh: pickle.dumps(x(mesh)))
        self.check(NotImplementedError, text, lambda mesh: torch.save(x(mesh), io.BytesIO()))
        self.check(NotImplementedError, text, lambda mesh: torch.save({"w": nn.Parameter(x(mesh))}, io.BytesIO()))
        with sherd.fake_world(0, 2):
            self.assertFalse(x(sherd.init_device_mesh("cpu", (2,))).is_shared())

    def test_wrong_reduction(self) -> None:
        self.check(
            ValueError,
            "Partial: no reduction has this name\n  given: mean\n"
            "  help: one of sum, avg, min, max, product, band, bor, bxor",
            lambda mesh: Partial("mean"),
        )

    def test_not_a_function(self) -> None:
        with self.assertRaisesRegex(TypeError, r"spawn: a function is needed\n  given: int\n  help: "):
            sherd.spawn(2, 3)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
