"""Looks at pages in a real browser: takes screenshots with headless Chromium and checks what a reader would see.

usage: screenshots.py CHROMIUM FOLDER PAGE[=NAME]... [--write DOCS]    exit code 77 where there is no such browser

On a wide screen and on a phone, in light and in dark colours, each page must be no wider than the screen, no text may run
into another or be cut off by its picture, and the screenshot must show something. Screenshots lie in FOLDER; with --write
those of the documents go to DOCS, too.
"""

from __future__ import annotations

import argparse
import collections
import html
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

SCREENS = {"wide": (840, "light"), "wide-dark": (840, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}
FOR_DOCS = ("wide", "phone-dark")
LARGEST = 200 * 1024  # bytes of a screenshot that goes into the documents
TALLEST = 6000  # pixels

# Runs in the page, and leaves what it found in its title.
MEASURE = """<script>
addEventListener("load", () => {
  const faults = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`the page is ${wide} pixels wide on a screen of ${innerWidth}`);
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    for (const [words, box] of texts) {
      if (box.width === 0) continue;
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        faults.push(`"${words}" is cut off in ${svg.getAttribute("aria-label")}`);
      for (const [others, other] of texts) {
        if (other === box || other.width === 0) continue;
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        // Lines of text have room above and below their letters.
        if (across > 1 && down > 0.45 * Math.min(box.height, other.height))
          faults.push(`"${words}" and "${others}" overlap in ${svg.getAttribute("aria-label")}`);
      }
    }
  }
  document.title = JSON.stringify({height: Math.ceil(document.body.getBoundingClientRect().bottom + scrollY), faults: faults.slice(0, 20),
    paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color});
});
</script>"""


Pixels = list[list[bytes]]  # rows of RGB


def decoded(png: bytes) -> Pixels:
    """The pixels of a file as Chromium writes it."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8 and kind in (2, 6), "Chromium writes RGB or RGBA"
    channels = 3 if kind == 2 else 4
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    raw, stride = zlib.decompress(data), width * channels
    before, pixels = bytearray(stride), []
    for y in range(height):
        start = y * (stride + 1)
        how, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        if how == 1:
            for i in range(channels, stride):
                line[i] = (line[i] + line[i - channels]) & 255
        elif how == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, before, strict=True))
        elif how == 3:
            for i in range(stride):
                left = line[i - channels] if i >= channels else 0
                line[i] = (line[i] + (left + before[i]) // 2) & 255
        elif how == 4:
            for i in range(stride):
                left, corner = (line[i - channels], before[i - channels]) if i >= channels else (0, 0)
                up = before[i]
                to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                nearest = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
                line[i] = (line[i] + nearest) & 255
        before = line
        pixels.append([bytes(line[i : i + 3]) for i in range(0, stride, channels)])
    return pixels


def with_palette(pixels: Pixels) -> bytes:
    """A small file: the 256 colours that there are most of, and the nearest of them for the others."""
    counts: collections.Counter[bytes] = collections.Counter(pixel for row in pixels for pixel in row)
    palette = [color for color, _ in counts.most_common(256)]
    index = {
        color: min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], color, strict=True)))
        for color in counts
    }

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + bytes(map(index.__getitem__, row)) for row in pixels)
    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"PLTE", b"".join(palette))
        + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    )  # fmt: skip


class Browser:
    def __init__(self, program: str, folder: str) -> None:
        self.command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            f"--user-data-dir={folder}",
        ]  # fmt: skip

    def run(self, page: pathlib.Path, width: int, height: int, scheme: str, *arguments: str) -> str:
        dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
        command = [*self.command, *dark, f"--window-size={width},{height}", *arguments, page.resolve().as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if result.returncode != 0:
            sys.exit(f"{command[0]} failed with {result.returncode}\n{result.stderr}")
        return result.stdout


def look_at(browser: Browser, page: pathlib.Path, name: str, folder: pathlib.Path, docs: pathlib.Path | None) -> list[str]:
    measured = folder / f"{name}.measured.html"
    measured.write_text(page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    faults = []
    papers = {}
    for screen, (width, scheme) in SCREENS.items():
        # Headless Chromium makes no window narrower than 500 pixels: a phone is a frame in one.
        shown = measured
        if width < 500:
            shown = folder / f"{name}.{screen}.html"
            inner = measured.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
            shown.write_text(
                f'<!doctype html><style>body{{margin:0}}iframe{{border:0;display:block}}</style>'
                f'<iframe srcdoc="{inner}" width="{width}" height="{TALLEST}"></iframe>'
                '<script>addEventListener("load", () => setTimeout(() => '
                'document.title = document.querySelector("iframe").contentDocument.title, 100))</script>',
                encoding="utf-8",
            )
        dom = browser.run(shown, max(width, 500), 1000, scheme, "--virtual-time-budget=3000", "--dump-dom")
        # A page in a frame has a title of its own, escaped, before that of the page around it.
        title = re.findall(r"<title>(\{.*?\})</title>", dom)
        assert title, f"{name} on {screen}: the page did not measure itself\n{dom[:500]}"
        found = json.loads(html.unescape(title[-1]))
        faults += [f"{name} on {screen}: {fault}" for fault in found["faults"]]
        papers[screen] = found["paper"], found["ink"]
        png = folder / f"{name}-{screen}.png"
        browser.run(shown, width, min(found["height"], TALLEST), scheme, f"--screenshot={png}")
        pixels = decoded(png.read_bytes())
        colors = len({pixel for row in pixels[::4] for pixel in row[::2]})
        if docs is not None and screen in FOR_DOCS:
            small = with_palette(pixels)
            (docs / png.name).write_bytes(small)
            if len(small) > LARGEST:
                faults.append(f"{png.name} has {len(small)} bytes: too many for the documents")
        size = f"{len(pixels[0])} x {len(pixels)}"
        print(f"{png.name}: {size}, {colors} colours, {png.stat().st_size // 1024} KiB", flush=True)
        if colors < 12:
            faults.append(f"{name} on {screen}: the screenshot has {colors} colours: is it blank?")
    if papers["wide"] == papers["wide-dark"]:
        faults.append(f"{name}: light and dark look the same: {papers}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chromium")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--write", type=pathlib.Path)
    arguments = parser.parse_args()
    if shutil.which(arguments.chromium) is None:
        print(f"skipped: there is no {arguments.chromium} here; ./dev docs installs it")
        sys.exit(77)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    faults = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(arguments.chromium, profile)
        for text in arguments.pages:
            path, _, name = text.partition("=")
            page = pathlib.Path(path)
            faults += look_at(browser, page, name or page.stem, arguments.folder, arguments.write)
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
