"""The command on checkpoints that PyTorch and sherd wrote. Makes them once, then runs every test_*.py of this folder.

usage: main.py SHERD [NAME...]    (build/bin/sherd; names of tests as unittest takes them)
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

import checkpoints


def main() -> None:
    checkpoints.SHERD = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.FOLDER = pathlib.Path(folder)
        checkpoints.make_all()
        loader = unittest.TestLoader()
        if len(sys.argv) > 2:
            suite = loader.loadTestsFromNames(sys.argv[2:])
        else:
            suite = loader.discover(str(pathlib.Path(__file__).parent), "test_*.py")
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
