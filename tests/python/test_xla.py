"""XLA's shardings agree with JAX's, device by device; tensors go to XLA through a bridge."""

from __future__ import annotations

import os
import pickle
import random
import unittest
from typing import Any

DEVICES = 16
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"

import torch

import sherd

try:  # only jax itself may be missing: a name that jax has moved is a failure, not a test to skip
    import jax
except ImportError:
    jax = None  # type: ignore[assignment]
if jax is not None:
    import numpy
    from jax._src.lib import xla_client
    from jax._src.sharding_impls import GSPMDSharding
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Bounds = tuple[tuple[int, int], ...]


class Case:
    """A random mesh, shape and way to cut, for sherd and for JAX."""

    def __init__(self, seed: int):
        draw = random.Random(seed)
        while True:
            self.sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
            self.count = int(numpy.prod(self.sizes))
            if self.count <= DEVICES:
                break
        self.names = [f"a{i}" for i in range(len(self.sizes))]
        self.ranks = list(range(self.count))
        self.in_order = draw.random() < 0.6
        if not self.in_order:
            draw.shuffle(self.ranks)
        ndim = draw.randint(0, 3)
        axes = list(range(len(self.sizes)))
        draw.shuffle(axes)
        # The axes that cut each dim, the first to cut in front.
        self.cutting: list[list[int]] = [[] for _ in range(ndim)]
        for axis in axes:
            if ndim and draw.random() < 0.75:
                self.cutting[draw.randrange(ndim)].append(axis)
        self.shape = [draw.randint(0, 4) * int(numpy.prod([self.sizes[a] for a in axes] or [1]))
                      for axes in self.cutting]  # JAX takes no uneven dims

    def layout(self) -> sherd.Layout:
        placements: list[Any] = [sherd.Replicate()] * len(self.sizes)
        for dim, axes in enumerate(self.cutting):
            for i, axis in enumerate(axes):
                split = int(numpy.prod([self.sizes[b] for b in axes[:i] if b > axis] or [1]))
                placements[axis] = sherd.Shard(dim) if split == 1 else sherd.StridedShard(dim, split)
        axes_text = ", ".join(f"{name}={size}" for name, size in zip(self.names, self.sizes))
        mesh = sherd.Mesh(f"[{axes_text}]{{{', '.join(map(str, self.ranks))}}}")
        return sherd.Layout(mesh, self.shape, placements)

    def named(self) -> NamedSharding:
        devices = numpy.array(jax.devices())[self.ranks].reshape(self.sizes)
        spec = [tuple(self.names[a] for a in axes) or None for axes in self.cutting]
        return NamedSharding(Mesh(devices, tuple(self.names)), PartitionSpec(*spec))

    def by_text(self, hlo: Any) -> GSPMDSharding:
        """A sharding of XLA's whose device ids are those of jax.devices()."""
        return GSPMDSharding(tuple(jax.devices()[: self.count]), hlo)


def bounds_of_jax(sharding: Any, shape: list[int]) -> dict[int, Bounds]:
    """What JAX gives to each device: begin and end in each dim."""
    return {
        device.id: tuple(s.indices(size)[:2] for s, size in zip(index, shape))
        for device, index in sharding.devices_indices_map(tuple(shape)).items()
    }


def bounds_of_box(box: sherd.Box) -> Bounds:
    return tuple((begin, begin + size) for begin, size in zip(box.offset, box.size))


@unittest.skipIf(jax is None, "needs jax")
class AgainstJax(unittest.TestCase):
    CASES = 1500

    def test_random_meshes_shapes_and_specs(self) -> None:
        cut = strided = listed = 0
        for seed in range(self.CASES):
            with self.subTest(seed=seed):
                case = Case(seed)
                layout, named = case.layout(), case.named()
                expected = bounds_of_jax(named, case.shape)
                self.assertEqual(sorted(expected), sorted(case.ranks))

                # What a rank holds is what JAX gives to the device.
                for device, bounds in expected.items():
                    boxes = layout.boxes(device)
                    if any(begin == end for begin, end in bounds):
                        self.assertEqual(boxes, [])
                    else:
                        self.assertEqual([bounds_of_box(box) for box in boxes], [bounds])

                # So does the sharding in our words, in XLA's text and in its bytes, read by XLA.
                sharding = sherd.xla_sharding(layout)
                self.check(sharding, case, expected)
                read = xla_client.HloSharding.from_string(str(sharding))
                self.assertEqual(bounds_of_jax(case.by_text(read), case.shape), expected)
                message = xla_client.OpSharding()
                message.ParseFromString(sharding.to_bytes())
                from_bytes = xla_client.HloSharding.from_proto(message)
                self.assertEqual(bounds_of_jax(case.by_text(from_bytes), case.shape), expected)

                # JAX's own text and bytes, read by us. It counts devices in the order of its mesh.
                theirs = named._to_xla_hlo_sharding(len(case.shape))
                self.assertEqual(sherd.XlaSharding.from_bytes(theirs.to_proto().SerializeToString()),
                                 sherd.XlaSharding(str(theirs)))
                by_place = {place: expected[rank] for place, rank in enumerate(case.ranks)}
                self.check(sherd.XlaSharding(str(theirs)), case, by_place)
                if case.in_order and case.count > 1:
                    self.assertEqual(str(sharding), str(theirs))

                # And back to placements.
                back = sharding.layout(layout.mesh, case.shape)
                self.assertTrue(back.same_boxes(layout), f"{back} and {layout}")

                cut += any(case.cutting)
                strided += any(isinstance(p, sherd.StridedShard) for p in layout.placements)
                listed += "<=" not in str(sharding) and sharding.kind == "tiled"
        self.assertGreater(cut, 1000)
        self.assertGreater(strided, 100)
        self.assertGreater(listed, 100)

    def check(self, sharding: sherd.XlaSharding, case: Case, expected: dict[int, Bounds]) -> None:
        for device, bounds in expected.items():
            if sharding.kind == "maximal" and device not in sharding.devices:
                continue
            self.assertEqual(bounds_of_box(sharding.box(case.shape, device)), bounds, str(sharding))

    def test_unreduced_is_a_partial_sum(self) -> None:
        mesh = jax.make_mesh((2, 4, 2), ("dp", "tp", "pp"), axis_types=(AxisType.Explicit,) * 3)
        ours = sherd.Mesh("[dp=2, tp=4, pp=2]")
        part, whole = sherd.Partial(), sherd.Replicate()
        for placements, spec in [
            ([sherd.Shard(0), part, whole], PartitionSpec("dp", unreduced={"tp"})),
            ([sherd.Shard(1), part, part], PartitionSpec(None, "dp", unreduced={"tp", "pp"})),
            ([part, sherd.Shard(0), sherd.Shard(1)], PartitionSpec("tp", "pp", unreduced={"dp"})),
            ([part, part, part], PartitionSpec(unreduced={"dp", "tp", "pp"})),
        ]:
            theirs = NamedSharding(mesh, spec)._to_xla_hlo_sharding(2)
            layout = sherd.Layout(ours, (8, 8), placements)
            self.assertEqual(sherd.XlaSharding(str(theirs)).layout(ours, (8, 8)), layout)
            self.assertEqual(str(xla_client.HloSharding.from_string(str(sherd.xla_sharding(layout)))), str(theirs))

    def test_every_kind_of_text_is_read_alike(self) -> None:
        for text in ["{replicated}", "{maximal device=3}", "{manual}", "{unknown}", "{unreduced}",
                     "{devices=[2,2]0,2,3,1}", "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
                     "{devices=[3,4,5]<=[3,4,5]T(2,1,0)}", "{devices=[60]<=[3,4,5]T(1,2,0)}"]:
            theirs = xla_client.HloSharding.from_string(text)
            self.assertEqual(str(sherd.XlaSharding(text)), str(theirs))
            bytes_of_theirs = theirs.to_proto().SerializeToString()
            self.assertEqual(sherd.XlaSharding.from_bytes(bytes_of_theirs), sherd.XlaSharding(text))
            if text != "{unreduced}":  # newer ones say in its metadata that what is to be reduced is a sum
                self.assertEqual(sherd.XlaSharding(text).to_bytes(), bytes_of_theirs)


class Values(unittest.TestCase):
    def test_parts_of_a_sharding(self) -> None:
        sharding = sherd.XlaSharding("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
        self.assertEqual((sharding.kind, sharding.tiles, sharding.devices, sharding.subgroups),
                         ("tiled", (2, 1, 2), (0, 1, 2, 3), ("replicated",)))
        self.assertEqual(pickle.loads(pickle.dumps(sharding)), sharding)
        self.assertEqual({sharding: 1}[sherd.XlaSharding(str(sharding))], 1)
        self.assertNotEqual(sharding, "text")

    def test_of_a_dtensor(self) -> None:
        with sherd.fake_world(0, 4):
            mesh = sherd.init_device_mesh("cpu", (2, 2))
            x = sherd.zeros(8, 8, device_mesh=mesh, placements=[sherd.Shard(1), sherd.Shard(0)])
            self.assertEqual(str(sherd.xla_sharding(x)), "{devices=[2,2]<=[2,2]T(1,0)}")
        with self.assertRaisesRegex(ValueError, "xla_sharding: the tensor is not distributed"):
            sherd.xla_sharding(torch.ones(2))

    def test_bad_input(self) -> None:
        with self.assertRaisesRegex(ValueError, "^parse_xla_sharding: expected '{'"):
            sherd.XlaSharding("replicated")
        with self.assertRaisesRegex(ValueError, "^parse_op_sharding: the bytes end inside a field"):
            sherd.XlaSharding.from_bytes(b"\x08")
        with self.assertRaisesRegex(ValueError, "^placements_of: 4 devices for a mesh of 8"):
            sherd.XlaSharding("{devices=[4]<=[4]}").layout(sherd.Mesh("[8]"), (8,))


class Bridge(unittest.TestCase):
    """With a stand-in for torch_xla that remembers what it was given."""

    def setUp(self) -> None:
        self.marked: dict[int, sherd.XlaSharding] = {}

        def mark(tensor: torch.Tensor, sharding: sherd.XlaSharding) -> torch.Tensor:
            self.marked[tensor.data_ptr()] = sharding
            return tensor

        sherd.register_xla_bridge(mark, lambda tensor: tensor.data_ptr() in self.marked, lambda tensor: tensor.clone())
        self.addCleanup(sherd.register_xla_bridge, None)
        world = sherd.fake_world(0, 1)
        world.__enter__()
        self.addCleanup(world.__exit__, None, None, None)
        self.mesh = sherd.init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))

    def sharding(self, tensor: torch.Tensor) -> str:
        return str(self.marked[tensor.data_ptr()])

    def test_a_tensor(self) -> None:
        x = torch.nn.Parameter(torch.ones(8, 8))
        y = sherd.distribute_tensor(x, self.mesh, [sherd.Shard(0), sherd.Shard(1)])
        self.assertIs(y, x)
        self.assertEqual(self.sharding(y), "{devices=[2,4]<=[8]}")
        self.assertTrue(torch.equal(sherd.full_tensor(y), x))
        with self.assertRaisesRegex(ValueError, "^distribute_tensor: the tensor is distributed already"):
            sherd.distribute_tensor(x, self.mesh, [sherd.Shard(0), sherd.Shard(1)])

    def test_a_module(self) -> None:
        def rows(name: str, module: torch.nn.Module, mesh: sherd.DeviceMesh) -> None:
            if isinstance(module, torch.nn.Linear):
                sherd.distribute_parameter_(module.weight, mesh, [sherd.Replicate(), sherd.Shard(0)])

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
        self.assertIs(sherd.distribute_module(model, self.mesh, rows), model)
        self.assertEqual(self.sharding(model[0].weight), "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
        self.assertEqual(self.sharding(model[0].bias), "{replicated}")
        self.assertEqual(self.sharding(model[1].running_mean), "{replicated}")
        with self.assertRaisesRegex(ValueError, "^distribute_module: the module is distributed already"):
            sherd.distribute_module(model, self.mesh)

    def test_an_exception_of_the_bridge_is_raised(self) -> None:
        def refuse(tensor: torch.Tensor, sharding: sherd.XlaSharding) -> torch.Tensor:
            raise KeyError("no such device")

        sherd.register_xla_bridge(refuse, lambda tensor: False)
        with self.assertRaisesRegex(KeyError, "no such device"):
            sherd.distribute_tensor(torch.ones(8), self.mesh, [sherd.Shard(0), sherd.Replicate()])

    def test_no_bridge(self) -> None:
        sherd.register_xla_bridge(None)
        with self.assertRaisesRegex(ValueError, 'distribute_tensor: to use an "xla" mesh, install the torch_xla package'):
            sherd.distribute_tensor(torch.ones(8), self.mesh, [sherd.Shard(0), sherd.Replicate()])
        with self.assertRaisesRegex(ValueError, "install the torch_xla package"):
            sherd.distribute_module(torch.nn.Linear(2, 2), self.mesh)
        with self.assertRaisesRegex(TypeError, "register_xla_bridge: mark is no function"):
            sherd.register_xla_bridge(3)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
