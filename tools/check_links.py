#!/usr/bin/env python3
"""Checks that the links between the project's documents lead somewhere: files, and headings within them.

usage: check_links.py [ROOT]
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def prose(path: Path) -> str:
    return CODE.sub("", FENCE.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """The names that headings get: lower case, spaces as dashes, punctuation dropped."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def faults_of(root: Path, document: Path) -> list[str]:
    faults = []
    for target in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", target):
            continue  # elsewhere
        file, _, anchor = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        name = document.relative_to(root)
        if not path.exists():
            faults.append(f"{name}: no such file: {target}")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            faults.append(f"{name}: no such heading: {target}")
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    documents = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])
    faults = [fault for document in documents for fault in faults_of(root, document)]
    for fault in faults:
        print(fault)
    print(f"check_links: {len(documents)} documents, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
