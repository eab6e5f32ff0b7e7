"""Writes every complete C++ program of a document to a folder, so that it can be compiled.

usage: extract_programs.py DOCUMENT FOLDER
Prints the files, one per line: <document>_<number>.cpp. A file that has not changed is not touched.
"""

import re
import sys
from pathlib import Path


def main() -> None:
    document, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    blocks = re.findall(r"^```cpp\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for number, block in enumerate((b for b in blocks if "int main(" in b), start=1):
        path = folder / f"{document.stem.lower()}_{number}.cpp"
        if not path.exists() or path.read_text(encoding="utf-8") != block:
            path.write_text(block, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
