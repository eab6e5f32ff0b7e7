"""Help whose examples run, completions, the man page, and how the command behaves on a terminal."""

from __future__ import annotations

import os
import pathlib
import pty
import re
import shutil
import subprocess
import time
import unittest

import checkpoints
import torch
from checkpoints import run

# Not run: what needs other hosts, and what measures for a while.
NOT_RUN = re.compile(r"--nnodes|calibrate|man -l|s3://")


def verbs() -> list[str]:
    return run("fly").stderr.split("verbs: ")[1].splitlines()[0].split(", ")


def on_terminal(words: list[str], folder: pathlib.Path, **variables: str) -> str:
    """What the command prints where output and errors are a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm", **variables)
        os.execv(checkpoints.SHERD, [checkpoints.SHERD, *words])
    out = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.waitpid(pid, 0)
    os.close(terminal)
    return out.decode()


class HabitsTest(unittest.TestCase):
    def test_the_examples_of_every_verb_run(self) -> None:
        count = 0
        for verb in verbs():
            examples = run("help", verb, code=0).stdout.split("examples:\n")[1]
            for line in examples.splitlines():
                # Behind four spaces, or in brackets behind three, stands what it does.
                command = re.split(r" {3,}", line.strip())[0]
                if not command or NOT_RUN.search(command):
                    continue
                with self.subTest(command=command):
                    folder = self.example_folder()
                    if verb == "convert":
                        (folder / "gpt.safetensors").unlink()  # which it makes
                    result = subprocess.run(
                        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
                        env={**os.environ, "PATH": f"{pathlib.Path(checkpoints.SHERD).parent}:{os.environ['PATH']}", "HOME": str(folder)},
                    )  # fmt: skip
                    self.assertEqual(result.returncode, 1 if command.startswith("sherd diff") else 0, result.stdout + result.stderr)
                    count += 1
        self.assertGreater(count, 40)

    def example_folder(self) -> pathlib.Path:
        """The checkpoints that examples name, anew for each."""
        template = checkpoints.FOLDER / "examples-template"
        if not template.exists():
            self.make_examples(template)
        folder = checkpoints.FOLDER / "examples"
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(template, folder)
        return folder

    def make_examples(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        model = {"norm": {"weight": torch.ones(4)}, "embed": torch.arange(960.0).reshape(120, 8)}
        layers = {"0": {"wq": torch.zeros(8, 8), "weight": torch.ones(8, 8)}}
        state = {"model": {**model, "layers": layers}, "module": {"w": torch.ones(2)}, "step": 4000}
        torch.save(state, folder / "state.pt")
        for step in (3000, 4000):
            run("convert", folder / "state.pt", folder / f"runs/gpt/step-{step}", code=0)
            state["step"] = 4000
            state["model"]["norm"]["weight"][0] += 1
            torch.save(state, folder / "state.pt")
        shutil.copytree(folder / "runs/gpt/step-4000", folder / "runs/gpt/step-4100-incremental")
        torch.save(state, folder / "gpt.pt")
        torch.save(state, folder / "broken.pt")
        torch.save({"optimizer": {"lr": 0.1}}, folder / "optimizer.pt")
        torch.save({"base": torch.ones(4)}, folder / "base")
        torch.save({"lora": torch.ones(4), "lora.step": 1}, folder / "lora")
        torch.save({"x": torch.ones(4)}, folder / "a")
        torch.save({"x": torch.ones(4) * 2}, folder / "b")
        run("convert", folder / "state.pt", folder / "model.safetensors", "--only", "model.*", code=0)
        torch.save({"transformer": {"h": {"gamma": torch.ones(4, 4)}}, "head": {"gamma": torch.ones(2)}, "tail": {"weight": torch.ones(4, 4)}}, folder / "t.pt")
        run("convert", folder / "t.pt", folder / "gpt.safetensors", code=0)
        (folder / "train").write_text("#!/bin/sh\nexit 0\n")
        (folder / "train").chmod(0o755)
        for name in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
            (folder / name).mkdir(parents=True)

    def test_completions_complete(self) -> None:
        script = checkpoints.FOLDER / "complete.sh"
        script.write_text(
            f'PATH={pathlib.Path(checkpoints.SHERD).parent}:$PATH; eval "$(sherd completion bash)"\n'
            'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sherd; echo "${COMPREPLY[@]}"; }\n'
            'try sherd insp\ntry sherd inspect --fi\ntry sherd inspect sherd-\ntry sherd cat torch-2 model.ta\n'
            'try sherd extract torch-2 model.rows --as f\ntry sherd inspect torch-1 --filter model.sc\ntry sherd help ver\n'
            'try sherd completion f\ntry sherd verify --threads ""\ntry sherd cat --precision 3 torch-1 ste\n'
        )
        lines = subprocess.run(["bash", str(script)], cwd=checkpoints.FOLDER, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        lines[2] = " ".join(sorted(lines[2].split()))
        self.assertEqual(
            lines,
            ["inspect", "--filter --files", "sherd-1 sherd-2 sherd-3 sherd-4", "model.table", "f32 f64", "model.scalar", "verify", "fish", "", "step"],
        )

    def test_completions_name_every_verb_and_option(self) -> None:
        for shell in ("bash", "zsh", "fish"):
            text = run("completion", shell, code=0).stdout
            for verb in verbs():
                self.assertRegex(text, rf"\b{verb}\b")
                for option in re.findall(r"(?:^|\s|,)--([a-z-]+)", run("help", verb).stdout.split("Options:\n")[1].split("\n\n")[0]):
                    self.assertIn(option, text, (shell, verb))
            if shutil.which(shell):
                subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True, check=True, timeout=60)

    def test_the_man_page_names_every_verb(self) -> None:
        page = run("man", code=0).stdout
        self.assertTrue(page.startswith(".TH SHERD 1 "))
        for verb in verbs():
            self.assertIn(f"\n.SS sherd {verb}", page)
        if shutil.which("man"):
            shown = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True, check=True, timeout=60)
            self.assertEqual(shown.stderr, "")

    def test_colours_and_widths_are_those_of_the_terminal(self) -> None:
        words = ["inspect", "torch-3", "--table"]
        plain = run(*words, code=0).stdout
        self.assertNotIn("\033", plain)
        colored = on_terminal(words, checkpoints.FOLDER, COLUMNS="200")
        self.assertIn("\033[36mf32", colored)
        self.assertEqual(re.sub(r"\033\[\d+m", "", colored).replace("\r\n", "\n"), plain)
        self.assertNotIn("\033", on_terminal(words, checkpoints.FOLDER, COLUMNS="200", NO_COLOR="1"))
        narrow = on_terminal(words, checkpoints.FOLDER, COLUMNS="72", NO_COLOR="1").replace("\r\n", "\n")
        self.assertLessEqual(max(len(line) for line in narrow.splitlines()[2:]), 72)
        self.assertIn("…", narrow)

    def test_progress_is_shown_on_a_terminal_alone(self) -> None:
        size = 1 << 30
        source = checkpoints.FOLDER / "hole.safetensors"
        header = b'{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
        header += b" " * (-len(header) % 8)
        with open(source, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
        words = ["diff", "hole.safetensors", "hole.safetensors"]
        self.assertEqual(run(*words, code=0).stderr, "")
        begin = time.monotonic()
        shown = on_terminal(words, checkpoints.FOLDER, COLUMNS="120")
        seconds = time.monotonic() - begin
        drawn = re.findall(r"\r\033\[K(diff  \[[# ]{24}\] +\d+ %  \S+ \S+ of 1\.0 GiB  \S+ \S+/s  \d+:\d\d left)", shown)
        self.assertLessEqual(len(drawn), seconds * 10 + 1)
        if seconds > 0.5:
            self.assertGreater(len(drawn), 0, shown)
        self.assertTrue(shown.endswith("1 equal, 0 different, 0 only in the first (-), 0 only in the second (+)\r\n"), shown)
        if drawn:
            self.assertIn("\r\033[K1 equal", shown)
        source.unlink()

    def test_it_starts_at_once(self) -> None:
        times = []
        for _ in range(10):
            begin = time.monotonic()
            run("inspect", "sherd-2", code=0)
            times.append(time.monotonic() - begin)
        self.assertLess(min(times), 0.05)


if __name__ == "__main__":
    unittest.main()
