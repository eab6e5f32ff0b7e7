"""The SVG files of docs/pictures are what the command draws today, and they and the golden page are well-formed XML.

usage: check_pictures.py SHERD [--write]    --write: writes the files anew
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = {
    "grid.svg": ("f32[8@dp, 6@tp]", "[dp=2, tp=2]"),
    "partial.svg": ("f32[64@tp, 32] P(sum)@dp", "[dp=2, tp=3]"),
    "slabs.svg": ("f32[6@dp, 8@tp, 10@ep]", "[dp=2, tp=2, ep=2]"),
    "strided.svg": ("f32[16@dp(split=2), 4]", "[dp=2]"),
}
# Drawn and parsed, not kept.
OTHERS = [
    ("f32[]", "[dp=2]"),
    ("f32[0@dp, 4]", "[dp=5]"),
    ("f32[2, 6@a, 3, 8@b, 10@c]", "[a=2, b=2, c=2]"),
    ("f32[100000000@a@b@c]", "[a=16, b=16, c=16]"),
    ("f32[10@dp(cuts=0:3:3:10), 4] P(avg)@tp", "[dp=3, tp=2]"),
]


def parsed(svg: str, where: str) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        sys.exit(f"{where}: not well-formed: {error}")
    assert root.tag == "{http://www.w3.org/2000/svg}svg", where
    return root


def main() -> None:
    sherd = sys.argv[1]
    stale = []
    for name, (tensor, mesh) in [*PICTURES.items(), *(("", other) for other in OTHERS)]:
        command = [sherd, "layout", tensor, "--mesh", mesh, "--svg", "-"]
        svg = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        parsed(svg, tensor)
        if not name:
            continue
        path = ROOT / "docs/pictures" / name
        if "--write" in sys.argv:
            path.write_text(svg, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != svg:
            stale.append(str(path))
    golden = (ROOT / "tests/golden/pictures.html").read_text(encoding="utf-8")
    pictures = re.findall(r"<svg .*?</svg>", golden, re.DOTALL)
    assert len(pictures) > 5, "the golden page shows pictures"
    for number, svg in enumerate(pictures):
        parsed(svg, f"pictures.html, picture {number}")
    if stale:
        sys.exit(f"not what the command draws: {', '.join(stale)}; check_pictures.py SHERD --write writes them anew")


if __name__ == "__main__":
    main()
