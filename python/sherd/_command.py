"""The `sherd` command that the package carries."""

from __future__ import annotations

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "sherd")
    os.execv(program, [program, *sys.argv[1:]])
