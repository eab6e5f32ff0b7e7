"""Tensors drawn and pages about a run, from Python."""

from __future__ import annotations

import contextlib
import io
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import torch

import sherd


def printed(tensor: torch.Tensor, **options: object) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        sherd.visualize_sharding(tensor, color=False, **options)  # type: ignore[arg-type]
    return out.getvalue()


class Visualize(unittest.TestCase):
    def test_the_first_rank_of_the_mesh_prints(self) -> None:
        for rank in range(3):
            with sherd.fake_world(rank, 3):
                mesh = sherd.DeviceMesh("cpu", [1, 2], mesh_dim_names=("dp",))
                text = printed(sherd.zeros(4, device_mesh=mesh, placements=[sherd.Shard(0)]))
                self.assertEqual(text.startswith("[4@dp] on [dp=2]{1-2}\n"), rank == 1, text)
                self.assertEqual(text == "", rank != 1)

    def test_every_kind_of_tensor(self) -> None:
        self.assertTrue(printed(torch.zeros(2, 3)).startswith("f32[2, 3], not distributed\n"))
        wrapper = sherd.LocalShardsWrapper([torch.ones(4, 2)], [(0, 1)], global_size=(4, 8))
        self.assertIn("│ here │", printed(wrapper, legend=False))
        with sherd.fake_world(0, 2):
            spec = sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
            self.assertIn("ShardedTensor f32[4, 2] in 2 shards", printed(sherd.sharded.zeros(spec, 4, 2)))

    def test_svg_and_page(self) -> None:
        svg = sherd.visualize_sharding_svg(torch.zeros(2, 3), width=320)
        self.assertEqual(ElementTree.fromstring(svg).get("width"), "320")
        self.assertEqual(svg._repr_svg_(), svg)
        page = sherd.visualize_sharding_html(torch.zeros(2, 3))
        self.assertTrue(page.startswith("<!doctype html>"))
        self.assertNotIn("<style>\n:root", page._repr_html_())
        self.assertIn("<svg", page._repr_html_())

    def test_what_is_no_tensor(self) -> None:
        for draw in (sherd.visualize_sharding, sherd.visualize_sharding_svg, sherd.visualize_sharding_html):
            with self.assertRaisesRegex(TypeError, "a torch.Tensor is needed"):
                draw([1, 2])  # type: ignore[operator]


class Reports(unittest.TestCase):
    def test_a_page(self) -> None:
        report = sherd.Report("A run").section("One").text("with `code`").note("small")
        report.chart("loss", {"a": [3.0, 2.0]}, limits={"allowed": [1.0, 1.0]}, marks={1: "saved"}, logarithmic=True)
        report.bars("time", ["x"], {"rank 0": [1.0]}).table(["name", "count"], [("w", 3)])
        report.picture("w", torch.zeros(2)).communication([])
        page = report.html()
        for piece in ("<h1>A run</h1>", "<code>code</code>", "<polyline", ">saved<", '<td class="number">3</td>', "Nothing was sent."):
            self.assertIn(piece, page)
        self.assertIn("iframe", report._repr_html_())

    def test_ranks_write_one_page_or_all_fail(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.html")

            def run(rank: int) -> str:
                mesh = sherd.init_device_mesh("cpu", (2,))
                parts = {"parameters": [sherd.zeros(8, device_mesh=mesh, placements=[sherd.Shard(0)]), None]}
                report = sherd.Report(f"by {rank}").memory("bytes", parts, mesh.get_group(0))
                report.write(path, mesh.get_group(0))
                try:
                    report.write(pathlib.Path(folder, "missing", "run.html"), mesh.get_group(0))
                except ValueError as error:
                    return str(error)
                return ""

            errors = sherd.spawn(2, run)
            self.assertIn("<h1>by 0</h1>", path.read_text(encoding="utf-8"))
            self.assertIn("rank 1: parameters, 16 B", path.read_text(encoding="utf-8"))
            self.assertEqual(errors[0], errors[1])
            self.assertIn("the page cannot be written", errors[0])

    def test_communication_by_axis_and_by_group(self) -> None:
        def run(rank: int) -> str:
            mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
            x = sherd.zeros(4, 256, device_mesh=mesh, placements=[sherd.Shard(0)])
            with sherd.CommDebugMode() as debug, sherd.CommRecorder() as recorder:
                sherd.full_tensor(x)
            return sherd.Report("x").communication(debug).communication(recorder.calls).html()

        page = sherd.spawn(2, run)[0]
        self.assertIn("<td>all_gather</td><td>dp</td><td>forward</td>", page)
        self.assertIn("received, by collective and group", page)

    def test_bad_bars_and_rows(self) -> None:
        with self.assertRaisesRegex(ValueError, "more values than the chart has parts"):
            sherd.Report("x").bars("b", ["one"], {"rank 0": [1.0, 2.0]})
        with self.assertRaisesRegex(ValueError, "another number of cells"):
            sherd.Report("x").table(["one"], [(1, 2)])


if __name__ == "__main__":
    unittest.main()
