"""sherd.sharded in one process, with ranks as threads: what a user of Python would try first. test_sharded.py compares
with torch.distributed."""

from __future__ import annotations

import copy
import pickle
import threading
import unittest
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import sherd
from sherd import sharded

ROWS = sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
COLUMNS = sharded.ChunkShardingSpec(1, ["rank:1/cpu", "rank:0/cpu"])
WHOLE = torch.arange(12.0).reshape(3, 4)


def on_ranks(n: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test runs on every rank, each a thread."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(self: unittest.TestCase) -> None:
            sherd.spawn(n, lambda rank: test(self, rank), timeout=60)

        run.__name__ = test.__name__
        return run

    return decorate


def whole_on_zero(x: torch.Tensor, rank: int) -> torch.Tensor | None:
    out = torch.empty(x.shape, dtype=x.dtype) if rank == 0 else None
    sharded.gather(x, out=out)
    return out


class Tensors(unittest.TestCase):
    @on_ranks(2)
    def test_it_is_an_ordinary_tensor(self, rank: int) -> None:
        x = sharded.shard_tensor(WHOLE, ROWS)
        self.assertIs(type(x), torch.Tensor)
        self.assertTrue(sharded.is_sharded_tensor(x))
        self.assertFalse(sharded.is_sharded_tensor(WHOLE) or sharded.is_sharded_tensor(3) or sherd.is_dtensor(x))
        self.assertEqual(x.shape, (3, 4))
        self.assertEqual(x.sum().item(), WHOLE.sum().item())
        y = whole_on_zero((x * 2).relu() + x, rank)
        if y is not None:
            self.assertTrue(y.equal(WHOLE * 3))

    @on_ranks(2)
    def test_shards_are_not_copied(self, rank: int) -> None:
        mine = torch.full((1, 4), float(rank))
        x = sharded.init_from_local_shards([sharded.Shard.from_tensor_and_offsets(mine, [rank, 0], rank)], 2, 4)
        self.assertIs(sharded.local_tensor(x), mine)
        self.assertIs(sharded.local_shards(x)[0].tensor, mine)
        y = sharded.init_from_local_tensor(mine, ROWS, 2, 4)
        z = sharded.init_from_local_shards_and_global_metadata(sharded.local_shards(x), sharded.metadata(x))
        x.add_(1)
        self.assertTrue(torch.equal(y, x) and torch.equal(z, x))

    @on_ranks(2)
    def test_training(self, rank: int) -> None:
        """A weight in rows, a step of SGD, as on one device."""
        weight = nn.Parameter(sharded.shard_tensor(WHOLE, ROWS))
        self.assertTrue(sharded.is_sharded_tensor(weight))
        optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
        alone = nn.Parameter(WHOLE.clone())
        reference = torch.optim.SGD([alone], lr=0.5, momentum=0.9)
        for _ in range(3):
            for tensor, step in ((weight, optimizer), (alone, reference)):
                step.zero_grad()
                (tensor**2).sum().backward()
                step.step()
        out = whole_on_zero(weight.detach(), rank)
        if out is not None:
            torch.testing.assert_close(out, alone.detach())

    @on_ranks(2)
    def test_gradients_pass_through_reshard(self, rank: int) -> None:
        x = sharded.shard_tensor(WHOLE, ROWS).requires_grad_()
        y = sharded.reshard(x, COLUMNS)
        self.assertIsNotNone(y.grad_fn)
        (y * y).sum().backward()
        self.assertEqual(sharded.sharding_spec(x.grad), ROWS)
        grad = whole_on_zero(x.grad, rank)
        if grad is not None:
            self.assertTrue(grad.equal(2 * WHOLE))

    @on_ranks(2)
    def test_in_place_reshard_is_seen_by_every_name(self, rank: int) -> None:
        x = sharded.shard_tensor(WHOLE, ROWS)
        other = x
        self.assertIs(sharded.reshard_(x, COLUMNS), x)
        self.assertEqual(sharded.local_tensor(other).shape, (3, 2))
        with self.assertRaisesRegex(ValueError, "reshard_: the tensor has a gradient to compute"):
            sharded.reshard_(sharded.ones(ROWS, 3, 4, requires_grad=True), COLUMNS)

    @on_ranks(2)
    def test_empty_shards_on_one_spot(self, rank: int) -> None:
        """More chunks than rows: several of a rank's shards begin and end at the end."""
        spec = sharded.ChunkShardingSpec(0, [f"rank:{rank}/cpu" for rank in (1, 0, 0, 0)])
        x = sharded.ones(spec, 1, 2)
        self.assertEqual(len(sharded.local_shards(x)), 3 if rank == 0 else 1)
        y = sharded.init_from_local_shards(sharded.local_shards(x), 1, 2)
        self.assertTrue(torch.equal(x, y))

    @on_ranks(2)
    def test_out_lies_in_the_same_pieces(self, rank: int) -> None:
        x, out = sharded.shard_tensor(WHOLE, ROWS), sharded.zeros(ROWS, 3, 4)
        self.assertIs(torch.add(x, x, out=out), out)
        self.assertTrue(torch.equal(out, x * 2))
        for other in (torch.zeros(3, 4), sharded.zeros(COLUMNS, 3, 4)):
            with self.assertRaisesRegex(NotImplementedError, "add: this operator cannot go piece by piece"):
                torch.add(x, x, out=other)
            self.assertEqual((other.shape, other.sum().item()), ((3, 4), 0))

    @on_ranks(2)
    def test_out_of_gather_is_a_plain_tensor(self, rank: int) -> None:
        x = sharded.shard_tensor(WHOLE, ROWS)
        distributed = sharded.zeros(ROWS, 3, 4)
        with self.assertRaisesRegex(ValueError, "gather: out is itself distributed"):
            sharded.gather(x, out=distributed if rank == 0 else None)
        out = torch.empty(4, 3).t() if rank == 0 else None  # not contiguous
        sharded.gather(x, out=out)
        if out is not None:
            self.assertTrue(out.equal(WHOLE))

    @on_ranks(4)
    def test_dtensors(self, rank: int) -> None:
        mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        d = sherd.distribute_tensor(WHOLE, mesh, [sherd.Shard(0), sherd.Shard(1)])
        x = sharded.from_dtensor(d)
        self.assertEqual(sharded.local_tensor(x).data_ptr(), sherd.to_local(d).data_ptr())
        back = sharded.to_dtensor(x, mesh, [sherd.Shard(0), sherd.Shard(1)])
        self.assertTrue(sherd.full_tensor(back).equal(WHOLE))
        self.assertTrue(sherd.full_tensor(sharded.to_dtensor(x)).equal(WHOLE))
        with self.assertRaisesRegex(ValueError, "to_dtensor: a rank holds another part than the placements give it"):
            sharded.to_dtensor(x, mesh, [sherd.Shard(1), sherd.Shard(0)])
        with self.assertRaisesRegex(ValueError, "to_dtensor: a mesh without placements"):
            sharded.to_dtensor(x, mesh)

    def test_printing(self) -> None:
        with sherd.fake_world(0, 2):
            x = sharded.full(ROWS, (3, 2), 1.0)
            self.assertEqual(
                repr(x),
                "ShardedTensor(f32[3, 2] in 2 shards over ranks 0, 1, here [0:2, 0:2] on rank:0/cpu:\n"
                "tensor([[1., 1.],\n        [1., 1.]]))",
            )
            self.assertEqual(f"{x}", repr(x))
            self.assertTrue(repr(nn.Parameter(x)).endswith("[1., 1.]]), requires_grad=True)"), repr(nn.Parameter(x)))
            self.assertTrue(repr(nn.Parameter(x)).startswith("Parameter containing:\nShardedTensor(f32"))
            two = sharded.zeros(sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:0/cpu"]), 2)
            self.assertTrue(repr(two).endswith(", [1:2] on rank:0/cpu:\ntensor([0.]),\ntensor([0.]))"), repr(two))
            none = sharded.zeros(sharded.ChunkShardingSpec(0, ["rank:1/cpu"]), 2)
            self.assertEqual(repr(none), "ShardedTensor(f32[2] in 1 shards over ranks 0, 1, here nothing)")

    def test_deepcopy(self) -> None:
        with sherd.fake_world(0, 2):
            x = sharded.ones(ROWS, 3, 4, requires_grad=True)
            x.note = ["kept"]  # type: ignore[attr-defined]
            y, z = copy.deepcopy([x, x])
            self.assertIs(y, z)
            self.assertEqual((y.note, y.requires_grad), (["kept"], True))
            self.assertEqual(sharded.sharding_spec(y), ROWS)
            self.assertNotEqual(sharded.local_tensor(y).data_ptr(), sharded.local_tensor(x).data_ptr())
            module = nn.Module()
            module.weight = nn.Parameter(sharded.ones(ROWS, 3))
            self.assertTrue(sharded.is_sharded_tensor(copy.deepcopy(module).weight))

    def test_other_python_threads_go_on(self) -> None:
        """A rank that waits for another holds no lock of the interpreter."""
        arrived = threading.Event()

        def wait(rank: int) -> None:
            if rank == 1:
                self.assertTrue(arrived.wait(60))
            else:
                threading.Timer(0.2, arrived.set).start()
            sharded.shard_tensor(WHOLE, ROWS)

        sherd.spawn(2, wait, timeout=60)


class Values(unittest.TestCase):
    def test_specs(self) -> None:
        spec = sharded.EnumerableShardingSpec([sharded.ShardMetadata([0], [2], "rank:0/cpu"),
                                               sharded.ShardMetadata([2], [3], "rank:1/cpu")])  # fmt: skip
        self.assertIsInstance(spec, sharded.ShardingSpec)
        self.assertEqual(repr(spec), "EnumerableShardingSpec([0:2] on rank:0/cpu, [2:5] on rank:1/cpu)")
        self.assertEqual(spec.shards[1].shard_offsets, [2])
        self.assertEqual(spec.build_metadata([5]).size, torch.Size([5]))
        self.assertEqual((ROWS.dim, ROWS.placements[1]), (0, sharded.RemoteDevice("rank:1/cpu")))
        self.assertNotEqual(ROWS, spec)
        self.assertNotEqual(ROWS, "rows")
        self.assertEqual(sharded.DevicePlacementSpec("rank:1/cpu").device.rank(), 1)
        self.assertEqual(len({sharded.ShardMetadata([0], [2]), sharded.ShardMetadata([0], [2])}), 1)
        self.assertEqual(sharded.ShardMetadata([1, 0], [2, 3]).box(), sherd.Box([1, 0], [2, 3]))
        self.assertEqual(sharded.TensorProperties.create_from_tensor(torch.ones(2).bool()).dtype, torch.bool)

    def test_they_can_be_pickled(self) -> None:
        values: list[Any] = [
            ROWS,
            sharded.EnumerableShardingSpec([sharded.ShardMetadata([0], [2], "rank:0/cpu")]),
            sharded.RemoteDevice("worker1/cuda:1"),
            sharded.DevicePlacementSpec("rank:3/cpu"),
            sharded.ShardMetadata([0], [2]),
            sharded.TensorProperties(torch.bfloat16, requires_grad=True),
            ROWS.build_metadata([3, 4]),
        ]
        for value in values:
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)
            self.assertEqual(copy.deepcopy(value), value)
            self.assertEqual(type(value).__module__, "sherd.sharded")

    def test_specs_of_torch_are_taken(self) -> None:
        from torch.distributed._shard import sharding_spec as theirs

        with sherd.fake_world(1, 2):
            x = sharded.zeros(theirs.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"]), 3, 4)
            self.assertEqual(sharded.sharding_spec(x), ROWS)


class OwnOperators(unittest.TestCase):
    def test_they_are_asked_in_order(self) -> None:
        calls = []

        @sharded.custom_sharding_spec_op(sharded.ChunkShardingSpec, "aten::logit")
        def logit(x: torch.Tensor, eps: float | None) -> torch.Tensor:
            calls.append(("of the spec", eps))
            return x.neg()

        self.assertTrue(sharded.has_custom_sharding_spec_op("ChunkShardingSpec", "aten::logit"))
        with sherd.fake_world(0, 2):
            x = sharded.ones(ROWS, 4)
            self.assertEqual(sharded.local_tensor(torch.logit(x, 0.25)).tolist(), [-1, -1])

            @sharded.custom_sharded_op("aten::logit")
            def logit_of_all(x: torch.Tensor, eps: float | None) -> torch.Tensor:
                calls.append(("of all", eps))
                return x + 1

            self.assertEqual(sharded.local_tensor(torch.logit(x)).tolist(), [2, 2])
        self.assertEqual(calls, [("of the spec", 0.25), ("of all", None)])

    def test_what_they_raise_comes_through(self) -> None:
        @sharded.custom_sharded_op("aten::special_entr")
        def entr(x: torch.Tensor) -> torch.Tensor:
            raise LookupError("no entropy here")

        with sherd.fake_world(0, 2), self.assertRaisesRegex(LookupError, "no entropy here"):
            torch.special.entr(sharded.ones(ROWS, 4))

    def test_several_results(self) -> None:
        @sharded.custom_sharded_op("aten::frexp.Tensor")
        def frexp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x * 3

        with sherd.fake_world(0, 2):
            a, b = torch.frexp(sharded.ones(ROWS, 4))
            self.assertEqual((sharded.local_tensor(a)[0].item(), sharded.local_tensor(b)[0].item()), (2, 3))

    def test_no_such_operator(self) -> None:
        with self.assertRaisesRegex(ValueError, r"custom_sharded_op: there is no such operator\n  operator: aten::oops"):
            sharded.custom_sharded_op("aten::oops")(lambda x: x)


class BadInput(unittest.TestCase):
    def check(self, kind: type[Exception], text: str, call: Callable[[], object]) -> None:
        with sherd.fake_world(0, 2), self.assertRaises(kind) as caught:
            call()
        self.assertEqual(str(caught.exception), text)

    def test_not_sharded(self) -> None:
        self.check(
            ValueError,
            "gather: not a ShardedTensor\n  tensor: f32[2]\n"
            "  help: sherd.sharded.shard_tensor(tensor, spec)",
            lambda: sharded.gather(torch.ones(2)),
        )

    def test_a_dtensor(self) -> None:
        self.check(
            ValueError,
            "local_shards: not a ShardedTensor\n  tensor: f32[2@0] on [2]\n  help: sherd.sharded.from_dtensor(tensor)",
            lambda: sharded.local_shards(
                sherd.ones(2, device_mesh=sherd.init_device_mesh("cpu", (2,)), placements=[sherd.Shard(0)])
            ),
        )

    def test_no_spec(self) -> None:
        self.check(
            TypeError,
            "zeros: this is no sharding spec\n  given: 0 (int)\n"
            '  help: sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])',
            lambda: sharded.zeros(0, 4),  # type: ignore[arg-type]
        )

    def test_no_shards(self) -> None:
        self.check(
            TypeError,
            "init_from_local_shards: a list of Shards is needed\n  given: tensor([1.]) (Tensor)\n"
            "  help: sherd.sharded.Shard.from_tensor_and_offsets(tensor, offsets, rank)",
            lambda: sharded.init_from_local_shards([torch.ones(1)], 2),  # type: ignore[list-item]
        )

    def test_no_group(self) -> None:
        self.check(
            TypeError,
            "zeros: this is no group\n  given: 'tp' (str)\n"
            "  help: world.group([0, 1]), or torch.distributed.new_group([0, 1])",
            lambda: sharded.zeros(ROWS, 4, process_group="tp"),
        )

    def test_two_groups(self) -> None:
        self.check(
            ValueError,
            "zeros: a group is given twice\n  process group: Group(ranks 0, 1)\n  ranks: [0, 1]\n"
            "  help: process_group=group, or ranks=[0, 1]",
            lambda: sharded.zeros(ROWS, 4, process_group=sherd.init().group(), ranks=[0, 1]),
        )

    @on_ranks(2)
    def test_a_parameter_that_one_rank_lacks(self, rank: int) -> None:
        model = nn.Linear(2, 2, bias=rank == 0)
        with self.assertRaises(ValueError if rank == 0 else AttributeError) as caught:
            sharded.shard_parameter(model, "bias" if rank == 0 else "bios", ROWS)
        self.assertIn("the module has no such parameter", str(caught.exception))
        if rank == 0:
            self.assertIn("1 of 2 ranks failed\n  rank 1: shard_parameter", str(caught.exception))

    @on_ranks(2)
    def test_a_plan_that_one_rank_cannot_follow(self, rank: int) -> None:
        model = nn.Sequential(nn.Linear(2, 2), *([nn.Linear(2, 2)] if rank == 0 else []))
        with self.assertRaises(ValueError if rank == 0 else AttributeError) as caught:
            sharded.shard_module(model, sharded.ShardingPlan({"0.weight": ROWS, "1.weight": ROWS}))
        if rank == 0:
            self.assertIn("1 of 2 ranks failed\n  rank 1:", str(caught.exception))
        self.assertFalse(sharded.is_sharded_tensor(model[0].weight))

    @on_ranks(2)
    def test_plans_of_different_length(self, rank: int) -> None:
        model = nn.Linear(2, 2)
        plan = {"weight": ROWS} if rank == 0 else {"weight": ROWS, "bias": ROWS}
        with self.assertRaisesRegex(ValueError, "ranks 0 and 1 ask for different things\n  rank 0: nothing more"):
            sharded.shard_module(model, sharded.ShardingPlan(plan))
        self.assertFalse(sharded.is_sharded_tensor(model.weight))

    def test_size(self) -> None:
        self.check(
            TypeError,
            "zeros: a shape is a sequence of integers\n  given: (2.5, 3)\n  help: (8, 8), or one after the other: 8, 8",
            lambda: sharded.zeros(ROWS, 2.5, 3),
        )

    def test_unknown_option(self) -> None:
        with sherd.fake_world(0, 2), self.assertRaisesRegex(TypeError, "unexpected keyword argument 'device'"):
            sharded.zeros(ROWS, 4, device="cpu")  # type: ignore[call-arg]

    def test_cut_already(self) -> None:
        text = (
            "shard_tensor: the tensor is distributed already\n"
            "  tensor: ShardedTensor f32[4] in 2 shards over ranks 0, 1, here [0:2] on rank:0/cpu\n"
            "  help: sherd.sharded.reshard(tensor, spec)"
        )
        self.check(ValueError, text, lambda: sharded.shard_tensor(sharded.ones(ROWS, 4), ROWS))
        text = (
            "distribute_tensor: the tensor is distributed already\n"
            "  tensor: ShardedTensor f32[4] in 2 shards over ranks 0, 1, here [0:2] on rank:0/cpu\n"
            "  help: sherd.sharded.to_dtensor(tensor)"
        )
        self.check(ValueError, text, lambda: sherd.distribute_tensor(
            sharded.ones(ROWS, 4), sherd.init_device_mesh("cpu", (2,)), [sherd.Shard(0)]))  # fmt: skip

    def test_data_of_one_process(self) -> None:
        part = (
            "a rank has only its part of a ShardedTensor\n"
            "  tensor: ShardedTensor f32[2] in 2 shards over ranks 0, 1, here [0:1] on rank:0/cpu\n"
            "  help: sherd.sharded.gather(tensor, out=whole) for all of it, sherd.sharded.local_shards(tensor) for this "
            "rank's part"
        )
        self.check(NotImplementedError, f"numpy: {part}", lambda: sharded.ones(ROWS, 2).numpy())
        self.check(NotImplementedError, f"tolist: {part}", lambda: sharded.ones(ROWS, 2).tolist())

    def test_without_torch_distributed(self) -> None:
        with sherd.fake_world(0, 2), self.assertRaisesRegex(ValueError, "to_torch: torch.distributed is not initialised"):
            sherd.to_torch(sharded.ones(ROWS, 2))
        with self.assertRaisesRegex(TypeError, "from_torch: no ShardedTensor of torch.distributed"):
            sharded.from_torch(torch.ones(2))


if __name__ == "__main__":
    unittest.main()
