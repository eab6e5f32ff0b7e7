"""CommDebugMode, named scopes, explain_step, and the ranges that torch's profiler sees."""

from __future__ import annotations

import json
import os
import tempfile
import unittest

import torch

import sherd


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(6, 8)
        self.down = torch.nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def sharded() -> tuple[torch.nn.Module, torch.Tensor]:
    mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    model = Mlp()
    sherd.fully_shard(model, mesh, units=["up", "down"])
    return model, sherd.distribute_tensor(torch.ones(4, 6), mesh, [sherd.Shard(0)])


class CommDebug(unittest.TestCase):
    def test_collectives_are_named_by_module(self) -> None:
        def program(rank: int) -> None:
            model, x = sharded()
            with sherd.CommDebugMode(model) as debug:
                model(x).pow(2).sum().backward()
            gathered = {r.module for r in debug.records if r.operation == "gather on use" and not r.backward}
            self.assertEqual(gathered, {"up", "down"})
            self.assertEqual(debug.get_comm_counts("forward")["all_gather"], 2)
            self.assertEqual(debug.get_total_counts(), len(debug.records))
            self.assertEqual(debug.bytes, sum(r.bytes for r in debug.records))
            self.assertIn("gather on use", debug.table())
            self.assertEqual(len(json.loads(debug.json())["records"]), len(debug.records))
            before = len(debug.records)
            model(x)
            self.assertEqual(len(debug.records), before, "it is over")

        sherd.spawn(2, program)

    def test_a_trace_of_all_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")

            def program(rank: int) -> None:
                model, x = sharded()
                with sherd.CommDebugMode(model, operators=True) as debug:
                    model(x).pow(2).sum().backward()
                debug.trace(path, sherd.device_mesh(x))
                with self.assertRaisesRegex(ValueError, "the file cannot be written"):
                    debug.trace(os.path.join(folder, "no", "such", "trace.json"), sherd.device_mesh(x))

            sherd.spawn(2, program)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {0, 1})
        self.assertTrue(all(event["dur"] >= 0 for event in events if event["ph"] == "X"))
        self.assertIn("all_gather dp", {event["name"] for event in events})

    def test_explain_step(self) -> None:
        def program(rank: int) -> None:
            model, x = sharded()
            step = sherd.explain_step(lambda: model(x), model)
            self.assertEqual({item.module for item in step.items}, {"up", "down"})
            self.assertGreaterEqual(step.items[0].bytes, step.items[1].bytes)
            self.assertEqual(json.loads(step.json())["calls"], step.calls)
            self.assertEqual(str(sherd.explain_step(lambda: x + 1)), "the step communicates nothing\n")

        sherd.spawn(2, program)

    def test_misuse(self) -> None:
        debug = sherd.CommDebugMode()
        with self.assertRaisesRegex(ValueError, "it has not begun"):
            debug.table()
        with debug, self.assertRaisesRegex(ValueError, "there is no such pass"):
            debug.get_comm_counts("sideways")
        self.assertEqual(debug.table(), "no communication\n")

    def test_profilers_see_ranges(self) -> None:
        def program(rank: int) -> None:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
            x = sherd.distribute_tensor(torch.ones(4, 6), mesh, [sherd.Shard(0)])
            if rank != 0:  # the profiler is one for the process
                sherd.full_tensor(x)
                return
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
                with sherd.named_scope("whole"):
                    sherd.full_tensor(x)
            names = {event.name for event in profile.events()}
            self.assertIn("sherd::all_gather@tp", names)
            self.assertIn("whole", names)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "profile.json")
                profile.export_chrome_trace(path)
                with open(path, encoding="utf-8") as file:
                    events = json.load(file)["traceEvents"]
            (found,) = [event for event in events if event["name"] == "sherd::all_gather@tp"]
            self.assertIn("48", str(found["args"]), "the bytes that the rank receives")

        sherd.spawn(2, program)


if __name__ == "__main__":
    unittest.main()
