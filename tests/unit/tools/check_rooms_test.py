"""check_rooms.py and check_links.py find what they are there to find."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / "tools"

GOOD = {
    "CMakeLists.txt": "sherd_add_rooms(layout launch)\nsherd_add_rooms(comm)\n",
    "include/sherd/box.h": "#include <vector>\n",
    "include/sherd/world.h": '#include <c10/core/Device.h>\n#include "sherd/box.h"\n',
    "include/sherd/sherd.h": '#include "sherd/box.h"\n#include "sherd/world.h"\n',
    "src/layout/CMakeLists.txt": "sherd_room(layout\n  PUBLIC box.h\n  SOURCES box.cpp\n  USES)\n",
    "src/layout/box.cpp": '#include "sherd/box.h"\n#include "layout/scan.h"\n',
    "src/layout/scan.h": "#include <string>\n",
    "src/launch/CMakeLists.txt": "sherd_room(launch SOURCES run.cpp USES layout)\n",
    "src/launch/run.cpp": '#include "sherd/box.h"\n',
    "src/comm/CMakeLists.txt": "sherd_room(comm TORCH PUBLIC world.h SOURCES world.cpp USES layout)\n",
    "src/comm/world.cpp": '#include "sherd/world.h"\n#include <torch/torch.h>\n#include "layout/scan.h"\n',
    "tools/main.cpp": '#include "launch/run.h"\n#include "sherd/box.h"\n',
    "src/launch/run.h": "",
    "bench/box.cpp": '#include "sherd/box.h"\n',
    "examples/demo.cpp": '#include "sherd/sherd.h"\n',
}


class CheckTest(unittest.TestCase):
    def check(self, script: str, files: dict[str, str]) -> tuple[int, list[str]]:
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            result = subprocess.run([sys.executable, TOOLS / script, root], capture_output=True, text=True)
            self.assertEqual(result.stderr, "")
            return result.returncode, result.stdout.splitlines()[:-1]

    def assert_fault(self, changes: dict[str, str], fault: str) -> None:
        code, faults = self.check("check_rooms.py", GOOD | changes)
        self.assertEqual(code, 1)
        self.assertEqual(faults, [fault])

    def test_good_tree_has_no_faults(self):
        self.assertEqual(self.check("check_rooms.py", GOOD), (0, []))

    def test_a_room_outside_the_uses_line(self):
        self.assert_fault(
            {"src/comm/world.cpp": '\n#include "launch/run.h"\n'},
            "src/comm/world.cpp:2: comm includes launch/run.h of launch, which is not in its USES line")

    def test_a_public_header_of_a_room_outside_the_uses_line(self):
        self.assert_fault(
            {"src/launch/run.cpp": '#include "sherd/world.h"\n'},
            "src/launch/run.cpp:1: launch includes sherd/world.h of comm, which is not in its USES line")

    def test_libtorch_in_a_room_without_it(self):
        self.assert_fault(
            {"src/launch/run.cpp": "#include <ATen/ATen.h>\n"},
            "src/launch/run.cpp:1: launch builds without libtorch but includes ATen/ATen.h")

    def test_libtorch_in_the_command(self):
        self.assert_fault(
            {"tools/main.cpp": "#include <c10/core/Device.h>\n"},
            "tools/main.cpp:1: tools builds without libtorch but includes c10/core/Device.h")

    def test_the_wide_torch_header_in_a_header(self):
        self.assert_fault(
            {"include/sherd/world.h": "#include <torch/torch.h>\n"},
            "include/sherd/world.h:1: headers include the narrow torch headers, never torch/torch.h")

    def test_a_private_header_in_a_public_one(self):
        self.assert_fault(
            {"include/sherd/world.h": '#include "layout/scan.h"\n'},
            "include/sherd/world.h:1: a public header includes layout/scan.h, which is not installed")

    def test_a_public_header_that_no_room_owns(self):
        self.assert_fault({"include/sherd/stray.h": ""},
                          "include/sherd/stray.h:1: no room lists this header as PUBLIC")

    def test_a_room_that_uses_one_below_it(self):
        self.assert_fault(
            {"src/layout/CMakeLists.txt": "sherd_room(layout PUBLIC box.h SOURCES box.cpp USES launch)\n"},
            "src/layout/CMakeLists.txt:1: layout uses launch, which does not stand above it in CMakeLists.txt")

    def test_private_headers_in_benchmarks(self):
        self.assert_fault({"bench/box.cpp": '#include "layout/scan.h"\n'},
                          "bench/box.cpp:1: bench/ includes public headers only, not layout/scan.h")

    def test_all_headers_in_a_room(self):
        self.assert_fault({"src/comm/world.cpp": '#include "sherd/sherd.h"\n'},
                          "src/comm/world.cpp:1: comm includes all public headers; name the ones it needs")

    def test_links(self):
        documents = {
            "README.md": "[a](docs/a.md) [b](docs/a.md#two-words) [c](https://x.y) `[d](nowhere)`\n```\n[e](no)\n```\n",
            "docs/a.md": "# One\n## Two words!\n[up](../README.md)\n",
        }
        self.assertEqual(self.check("check_links.py", documents), (0, []))
        documents["README.md"] = "[a](docs/b.md)\n[b](docs/a.md#three)\n"
        self.assertEqual(self.check("check_links.py", documents),
                         (1, ["README.md: no such file: docs/b.md", "README.md: no such heading: docs/a.md#three"]))


if __name__ == "__main__":
    unittest.main()
