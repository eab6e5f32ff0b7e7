"""sherd layout: text, colours, SVG and pages."""

from __future__ import annotations

import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from checkpoints import run
from test_habits import on_terminal

LAYOUT = ["layout", "f32[8@dp, 6]", "--mesh", "[dp=2]"]


class Layout(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_colors_follow_the_terminal(self) -> None:
        self.assertNotIn("\033[", run(*LAYOUT).stdout)
        self.assertIn("\033[30;48;5;", run(*LAYOUT, "--color", "always").stdout)
        self.assertIn("\033[30;48;5;", on_terminal(LAYOUT, self.folder))
        self.assertNotIn("\033[30", on_terminal(LAYOUT, self.folder, NO_COLOR="1"))
        self.assertNotIn("\033[30", on_terminal([*LAYOUT, "--color", "never"], self.folder))
        self.assertIn("\033[30", on_terminal([*LAYOUT, "--color", "always"], self.folder, NO_COLOR="1"))
        self.assertEqual(run(*LAYOUT, "--color", "purple").returncode, 2)

    def test_svg_and_page(self) -> None:
        svg, page = self.folder / "layout.svg", self.folder / "layout.html"
        result = run(*LAYOUT, "--svg", str(svg), "--html", str(page))
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(ElementTree.parse(svg).getroot().tag, "{http://www.w3.org/2000/svg}svg")
        self.assertIn("<h2>f32[8@dp, 6]</h2>", page.read_text(encoding="utf-8"))
        self.assertEqual(run(*LAYOUT, "--svg", "-").stdout, svg.read_text(encoding="utf-8"))

    def test_a_file_that_is_there_is_kept(self) -> None:
        there = self.folder / "there.svg"
        there.write_text("mine", encoding="utf-8")
        self.assertEqual(run(*LAYOUT, "--svg", str(there)).returncode, 2)
        self.assertEqual(there.read_text(encoding="utf-8"), "mine")
        self.assertEqual(run(*LAYOUT, "--svg", str(there), "--force").returncode, 0)
        self.assertTrue(there.read_text(encoding="utf-8").startswith("<svg"))

    def test_a_folder_that_is_not_there(self) -> None:
        result = run(*LAYOUT, "--svg", "/proc/nowhere/x.svg")
        self.assertEqual(result.returncode, 2)
        self.assertIn("/proc/nowhere", result.stderr)
