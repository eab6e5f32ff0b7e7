"""Follows docs/guide.md word by word, as somebody does who has nothing: installs sherd into an empty home, writes the files that the guide
shows, runs its commands in one shell, and compares what they print.

A block whose last line before it names a file ("`train.cpp`: ...") is that file, in ~/first. In blocks of ```console lines that begin with
"$ " are commands; what follows is what they print, where a line "..." stands for any lines. A block after a comment "<!-- not run: why -->"
is left out.

usage: follow_guide.py DOCUMENT BUILD [--write]    BUILD: a build folder, of which the test installs; --write: puts what they print into
the document
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^([^\n]*)\n\n?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
END = "--- end of a command: "


def run(commands: list[str], folder: pathlib.Path, home: pathlib.Path) -> list[tuple[str, int]]:
    """What each command prints, and its exit code; all run in one shell."""
    script = "".join(f"{command}\necho '{END}'$?\n" for command in commands)
    environment = {**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False
    )
    parts = re.split(rf"{re.escape(END)}(\d+)\n", result.stdout)
    return [(parts[i], int(parts[i + 1])) for i in range(0, len(parts) - 1, 2)]


def fits(printed: str, expected: str) -> bool:
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in expected.splitlines())
    return re.fullmatch(pattern, printed) is not None


def main() -> None:
    document, build = pathlib.Path(sys.argv[1]), sys.argv[2]
    text = document.read_text(encoding="utf-8")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        source = home / "source"  # where the guide begins: the folder of the source, which has a torch in .venv
        for folder in (source, home / "first"):
            folder.mkdir()
        (source / ".venv").symlink_to(sys.prefix)
        subprocess.run(["cmake", "--install", build, "--prefix", home / "sherd"], check=True, stdout=subprocess.DEVNULL)
        shown = []  # (command, what the document says it prints, where that stands)
        for block in FENCE.finditer(text):
            file = re.search(r"`(\w+\.(?:txt|cpp))`:", block.group(1))
            if file:
                (home / "first" / file.group(1)).write_text(block.group(3), encoding="utf-8")
            if block.group(2) != "console" or block.group(1).startswith("<!-- not run"):
                continue
            for each in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.group(3), re.MULTILINE):
                start = block.start(3)
                shown.append((each.group(1), each.group(2), (start + each.start(2), start + each.end(2))))
        assert shown and (home / "first/train.cpp").exists(), "the guide shows no program"
        results = run([command for command, _, _ in shown], source, home)
        assert len(results) == len(shown), f"the shell ended early: {results[-1:]}"
        for (command, expected, (start, end)), (printed, code) in reversed(list(zip(shown, results, strict=True))):
            if code != 0 or not fits(printed, expected):
                failed += 1
                print(f"$ {command}   (exit code {code})\n--- in the document\n{expected}--- printed\n{printed}")
                text = text[:start] + printed + text[end:]
    if failed and "--write" in sys.argv:
        document.write_text(text, encoding="utf-8")
    elif failed:
        sys.exit(f"{failed} commands do something else; follow_guide.py DOCUMENT BUILD --write puts what they print into the document")


if __name__ == "__main__":
    main()
