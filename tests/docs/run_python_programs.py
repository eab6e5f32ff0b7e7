"""Runs every Python program of a document: those that begin with `# run: processes N` under torchrun, the others alone.

usage: run_python_programs.py DOCUMENT
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile


def main() -> None:
    document = pathlib.Path(sys.argv[1])
    text = document.read_text(encoding="utf-8")
    programs = list(re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert programs, f"{document} has no Python program"
    for program in programs:
        where = f"{document.name}:{text[: program.start()].count(chr(10)) + 2}"
        processes = re.match(r"# run: processes (\d+)", program.group(1))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(program.group(1), encoding="utf-8")
            command = [sys.executable]
            if processes:
                command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes.group(1)]
            print("running", where, flush=True)
            result = subprocess.run([*command, str(path)], timeout=300, check=False)
        if result.returncode != 0:
            sys.exit(f"{where}: failed with {result.returncode}")


if __name__ == "__main__":
    main()
