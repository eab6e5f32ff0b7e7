"""Runs the examples in the docstrings of the package."""

import doctest
import importlib
import pkgutil
import sys

import sherd

failed = tried = 0
names = ["sherd"] + [f"sherd.{module.name}" for module in pkgutil.iter_modules(sherd.__path__)]
for name in names:
    if name.endswith("._C"):
        continue
    result = doctest.testmod(importlib.import_module(name))
    failed += result.failed
    tried += result.attempted
print(f"{tried} examples, {failed} failed")
sys.exit(1 if failed or not tried else 0)
