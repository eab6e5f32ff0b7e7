"""What a rank keeps of a tensor, from Python: LocalShardsWrappers, their metadata, chunks of any tensor, pickles."""

from __future__ import annotations

import copy
import io
import pickle
import unittest
from typing import Any

import torch
from torch import nn

import sherd
from sherd import Shard, ShardIndex, sharded

ROWS = sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])


def wrapper(**options: Any) -> torch.Tensor:
    return sherd.LocalShardsWrapper([torch.ones(4, 2), torch.full((4, 1), 2.0)], [(0, 0), (0, 7)], **options)


def through_torch(value: Any) -> Any:
    """torch.save and torch.load, which takes known functions alone."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Wrappers(unittest.TestCase):
    def test_metadata(self) -> None:
        x = wrapper()
        self.assertEqual([(c.offsets, c.sizes) for c in sherd.local_chunks(x)], [([0, 0], [4, 2]), ([0, 7], [4, 1])])
        kept = sherd.storage_metadata(x)
        self.assertEqual((kept.size, kept.properties.dtype), ([4, 3], torch.float32))
        self.assertEqual(kept.chunks, sherd.local_chunks(x))
        self.assertEqual(kept, sherd.storage_metadata(wrapper()))
        self.assertEqual(sherd.storage_metadata(wrapper(global_size=(4, 8))).size, [4, 8])
        self.assertNotEqual(kept, sherd.storage_metadata(wrapper(global_size=(4, 8))))
        empty = sherd.LocalShardsWrapper([], [], global_size=(4, 8), dtype=torch.int64)
        self.assertEqual(sherd.storage_metadata(empty).chunks, [])

    def test_printing(self) -> None:
        self.assertEqual(
            repr(wrapper()),
            "LocalShardsWrapper(f32[4, 3] on cpu: [0:4, 0:2], [0:4, 7:8]:\n"
            f"{torch.ones(4, 2)!r},\n{torch.full((4, 1), 2.0)!r})",
        )
        self.assertIn("requires_grad=True", repr(wrapper().requires_grad_()))
        with self.assertRaisesRegex(NotImplementedError, "^tolist: .*LocalShardsWrapper\n(.|\n)*sherd.local_shards"):
            wrapper().tolist()

    def test_copies(self) -> None:
        for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), through_torch):
            for x in (wrapper(), wrapper(global_size=(4, 8)).requires_grad_(), nn.Parameter(wrapper())):
                y = again(x)
                self.assertTrue(sherd.is_local_shards(y))
                self.assertIs(type(y), type(x))
                self.assertEqual(y.requires_grad, x.requires_grad)
                self.assertEqual(sherd.storage_metadata(y), sherd.storage_metadata(x))
                for mine, theirs in zip(sherd.local_shards(y), sherd.local_shards(x)):
                    self.assertTrue(torch.equal(mine, theirs))
                    self.assertNotEqual(mine.data_ptr(), theirs.data_ptr())
        empty = sherd.LocalShardsWrapper([], [], global_size=(4, 8), dtype=torch.int64)
        self.assertEqual(sherd.storage_metadata(through_torch(empty)), sherd.storage_metadata(empty))


class Chunks(unittest.TestCase):
    def test_of_a_wrapper(self) -> None:
        x = wrapper(global_size=(4, 8))
        held = sherd.checkpointable(x)
        self.assertEqual(held.global_size(), [4, 8])
        items = held.write_items("table")
        self.assertEqual([(i.name, i.chunk, i.global_size) for i in items],
                         [("table", chunk, [4, 8]) for chunk in sherd.local_chunks(x)])  # fmt: skip
        self.assertEqual(items[1].index(), ShardIndex("table", [0, 7]))
        self.assertEqual(held.shard(items[1].index()).data_ptr(), sherd.local_shards(x)[1].data_ptr())
        with self.assertRaisesRegex(ValueError, "table"):
            held.shard(ShardIndex("table", [1, 1]))
        with self.assertRaisesRegex(ValueError, "the size of the whole tensor is not known"):
            sherd.checkpointable(wrapper()).write_items("table")

    def test_of_a_dtensor(self) -> None:
        with sherd.fake_world(3, 4):
            mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            x = sherd.ones(6, 4, device_mesh=mesh, placements=[sherd.Replicate(), Shard(0)])
            held = sherd.checkpointable(x)
            self.assertEqual(held.chunk_list(), [sherd.ChunkMetadata([3, 0], [3, 4])])
            self.assertEqual(held.copies(), [1, 3])
            self.assertEqual(held.write_items("w"), [])  # the first copy's ranks write
            self.assertEqual(len(held.write_items("w", every_copy=True)), 1)
            held.shard(ShardIndex("w", [3, 0])).zero_()  # the memory itself
            self.assertEqual(sherd.to_local(x).sum().item(), 0)
            with self.assertRaisesRegex(ValueError, "Partial"):
                sherd.checkpointable(sherd.from_local(torch.ones(2), mesh, [sherd.Partial(), sherd.Replicate()]))

    def test_of_a_sharded_and_of_a_plain_tensor(self) -> None:
        with sherd.fake_world(1, 2):
            held = sherd.checkpointable(sharded.ones(ROWS, 5, 2))
            self.assertEqual(held.chunk_list(), [sherd.ChunkMetadata([3, 0], [2, 2])])
        held = sherd.checkpointable(torch.ones(3))
        self.assertEqual(held.chunk_list(), [sherd.ChunkMetadata([0], [3])])
        with self.assertRaisesRegex(TypeError, "^checkpointable: "):
            sherd.checkpointable(3)  # type: ignore[arg-type]


class ShardedPickles(unittest.TestCase):
    def test_they_come_back_on_the_same_rank(self) -> None:
        def again(rank: int) -> None:
            x = sharded.rand(ROWS, 5, 3)
            for way in (lambda value: pickle.loads(pickle.dumps(value)), through_torch):
                y = way(x)
                self.assertEqual(sharded.sharding_spec(y), ROWS)
                self.assertTrue(torch.equal(sharded.local_tensor(y), sharded.local_tensor(x)))
                self.assertNotEqual(sharded.local_tensor(y).data_ptr(), sharded.local_tensor(x).data_ptr())
                parameter = way(nn.Parameter(x))
                self.assertIs(type(parameter), nn.Parameter)
                self.assertTrue(parameter.requires_grad and torch.equal(parameter.detach(), x))

        sherd.spawn(2, again, timeout=60)

    def test_a_module(self) -> None:
        def again(rank: int) -> None:
            model = nn.Linear(3, 4)
            sharded.shard_parameter(model, "weight", ROWS)
            state = through_torch(model.state_dict())
            self.assertTrue(torch.equal(state["weight"], model.weight))
            self.assertTrue(torch.equal(pickle.loads(pickle.dumps(model)).weight, model.weight))

        sherd.spawn(2, again, timeout=60)

    def test_not_on_another_rank(self) -> None:
        with sherd.fake_world(0, 2):
            saved = pickle.dumps(sharded.ones(ROWS, 5, 3))
        with sherd.fake_world(1, 2), self.assertRaises(RuntimeError):
            pickle.loads(saved)

    def test_a_group(self) -> None:
        with sherd.fake_world(2, 4) as world:
            spec = sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:2/cpu"])
            with sharded.load_with_process_group(world.group([0, 2])):
                saved = pickle.dumps(sharded.ones(spec, 4))
                found = sharded.group(pickle.loads(saved))
                assert found is not None
                self.assertEqual(found.ranks, [0, 2])


if __name__ == "__main__":
    unittest.main()
