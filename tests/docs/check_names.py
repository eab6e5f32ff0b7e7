"""Finds names of sherd in a document that the library does not have: `sherd::x` in the public headers, `sherd.x` in the Python package.

usage: check_names.py DOCUMENT...
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    headers = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "include/sherd").glob("*.h"))
    package = (ROOT / "python/sherd/__init__.py").read_text(encoding="utf-8")
    faults = 0
    for name in sys.argv[1:]:
        text = Path(name).read_text(encoding="utf-8")
        for pattern, where in ((r"\bsherd::(\w+)", headers), (r"`sherd\.(\w+)\b(?!/)", package)):
            for word in sorted(set(re.findall(pattern, text))):
                if word == "sherd" or re.search(rf"\b{word}\b", where):
                    continue
                print(f"{name}: sherd has no {word}")
                faults += 1
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
