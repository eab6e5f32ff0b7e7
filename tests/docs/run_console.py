"""Runs the commands that a document shows, and compares what they print with what stands there.

In blocks of ```console a line that begins with "$ " is a command of bash; what follows, up to the next one, is what it prints, errors
too. All run one after the other in one folder, in which the document's checkpoints lie.

usage: run_console.py DOCUMENT SHERD [--write]    --write: puts what they print into the document
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch

WHEN = 1767323040  # 2026-01-02 03:04 UTC


def make_checkpoints(folder: pathlib.Path, sherd: str) -> None:
    """Two steps of a run on four ranks, and the same as one file."""
    layers = {str(i): {"wq": torch.arange(64.0).reshape(8, 8) / 8 + i, "norm": torch.ones(8)} for i in range(3)}
    state = {
        "model": {"embed": torch.arange(96.0).reshape(12, 8).to(torch.bfloat16), "layers": layers},
        "optimizer": {"lr": 0.001, "betas": (0.9, 0.95)},
        "step": 3000,
    }
    (folder / "runs/gpt").mkdir(parents=True)
    for step in (3000, 4000):
        state["step"] = step
        torch.save(state, folder / "gpt.pt")
        subprocess.run([sherd, "reshard", "gpt.pt", f"runs/gpt/step-{step}", "--ranks", "4"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        layers["1"]["wq"][2, 3] += 0.5
    for file in folder.rglob("*"):
        os.utime(file, (WHEN, WHEN))


def printed_by(command: str, folder: pathlib.Path, sherd: str) -> str:
    environment = {**os.environ, "PATH": f"{pathlib.Path(sherd).parent}:{os.environ['PATH']}", "TZ": "UTC"}
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return result.stdout


def main() -> None:
    document, sherd = pathlib.Path(sys.argv[1]), str(pathlib.Path(sys.argv[2]).resolve())
    text = document.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert blocks, f"{document} shows no command"
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_checkpoints(folder, sherd)
        new = []
        for block in blocks:
            out = ""
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.group(1), re.MULTILINE):
                found = printed_by(command, folder, sherd)
                out += f"$ {command}\n{found}"
                if found != expected and "--write" not in sys.argv:
                    line = text[: block.start()].count("\n") + 1
                    print(f"{document.name}:{line}: $ {command}\n--- in the document\n{expected}--- printed\n{found}")
                    failed += 1
            new.append(out)
    if "--write" in sys.argv:
        for block, out in reversed(list(zip(blocks, new, strict=True))):
            text = text[: block.start(1)] + out + text[block.end(1) :]
        document.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(f"{failed} commands print something else; run_console.py DOCUMENT SHERD --write puts it into the document")


if __name__ == "__main__":
    main()
