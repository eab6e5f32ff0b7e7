#!/usr/bin/env python3
"""Checks that the rooms of src/ include only what their USES lines allow. A test; also part of ./dev lint.

A room's CMakeLists.txt says `sherd_room(name [TORCH] PUBLIC ... SOURCES ... USES ...)`. The headers of include/sherd/
belong to the room that lists them as PUBLIC. The order of the rooms is that of sherd_add_rooms in the root
CMakeLists.txt. Prints one line per fault and returns 1 where there are any.

usage: check_rooms.py [ROOT]
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH_FOLDERS = {"ATen", "c10", "torch", "caffe2"}
EVERYTHING = "sherd.h"  # takes all public headers; for users, not for rooms


@dataclass
class Room:
    name: str
    torch: bool = False
    words: dict[str, list[str]] = field(default_factory=dict)  # PUBLIC, SOURCES, USES

    @property
    def uses(self) -> list[str]:
        return self.words.get("USES", [])

    @property
    def reach(self) -> set[str]:
        return {self.name, *self.uses}


def without_comments(text: str) -> str:
    return re.sub(r"#.*", "", text)


def read_rooms(root: Path) -> dict[str, Room]:
    """The rooms in the order in which the root file adds them."""
    order: list[str] = []
    for names in re.findall(r"sherd_add_rooms\(([^)]*)\)", without_comments((root / "CMakeLists.txt").read_text())):
        order += names.split()
    rooms = {}
    for name in order:
        text = without_comments((root / "src" / name / "CMakeLists.txt").read_text())
        match = re.search(r"sherd_room\(\s*(\w+)([^)]*)\)", text)
        room = Room(match.group(1))
        key = None
        for word in match.group(2).split():
            if word == "TORCH":
                room.torch = True
            elif word in ("PUBLIC", "SOURCES", "USES"):
                key = word
                room.words[key] = []
            else:
                room.words[key].append(word)
        rooms[name] = room
    return rooms


def includes(path: Path) -> list[tuple[int, str, str]]:
    """(line, "<" or '"', what) of every #include."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)) for m in INCLUDE.finditer(text)]


def cpp_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".hpp", ".cpp"))


class Checker:
    def __init__(self, root: Path):
        self.root = root
        self.rooms = read_rooms(root)
        self.owner = {header: room.name for room in self.rooms.values() for header in room.words.get("PUBLIC", [])}
        self.faults: list[str] = []

    def fault(self, path: Path, line: int, text: str) -> None:
        self.faults.append(f"{path.relative_to(self.root)}:{line}: {text}")

    def check_room_lines(self) -> None:
        seen: list[str] = []
        for name, room in self.rooms.items():
            path = self.root / "src" / name / "CMakeLists.txt"
            if room.name != name:
                self.fault(path, 1, f"the room of src/{name} is called {room.name}")
            for used in room.uses:
                if used not in seen:
                    self.fault(path, 1, f"{name} uses {used}, which does not stand above it in CMakeLists.txt")
                elif self.rooms[used].torch and not room.torch:
                    self.fault(path, 1, f"{name} builds without libtorch but uses {used}, which does not")
            seen.append(name)
            for header in room.words.get("PUBLIC", []):
                if not (self.root / "include/sherd" / header).exists():
                    self.fault(path, 1, f"PUBLIC {header} is not in include/sherd/")
        for header in sorted((self.root / "include/sherd").glob("*.h")):
            if header.name not in self.owner and header.name != EVERYTHING:
                self.fault(header, 1, "no room lists this header as PUBLIC")
        for folder in sorted((self.root / "src").iterdir()):
            if folder.is_dir() and cpp_files(folder) and folder.name not in self.rooms:
                self.fault(folder, 1, "no sherd_add_rooms line adds this room")

    def room_of(self, include: str) -> str | None:
        """The room that an include belongs to: None for what is not ours."""
        folder, slash, rest = include.partition("/")
        if folder == "sherd":
            return self.owner.get(rest)
        return folder if slash and folder in self.rooms else None

    def check_includes(self, path: Path, who: str, reach: set[str], torch: bool) -> None:
        for line, mark, what in includes(path):
            if what == "torch/torch.h" and path.suffix != ".cpp":
                self.fault(path, line, "headers include the narrow torch headers, never torch/torch.h")
            elif what.split("/")[0] in TORCH_FOLDERS and not torch:
                self.fault(path, line, f"{who} builds without libtorch but includes {what}")
            if what == f"sherd/{EVERYTHING}":
                self.fault(path, line, f"{who} includes all public headers; name the ones it needs")
                continue
            room = self.room_of(what)
            if room is not None and room not in reach:
                self.fault(path, line, f"{who} includes {what} of {room}, which is not in its USES line")
            if mark == '"' and "/" in what and not (self.root / "include" / what).exists() \
                    and not (self.root / "src" / what).exists() and not (path.parent / what).exists():
                self.fault(path, line, f"there is no {what}")

    def check_public_only(self, folder: str) -> None:
        """bench/, examples/ and the programs that the command starts see what a user sees."""
        for path in cpp_files(self.root / folder):
            for line, _, what in includes(path):
                if "/" in what and what.split("/")[0] in self.rooms:
                    self.fault(path, line, f"{folder}/ includes public headers only, not {what}")

    def run(self) -> list[str]:
        self.check_room_lines()
        for name, room in self.rooms.items():
            for path in cpp_files(self.root / "src" / name):
                self.check_includes(path, name, room.reach, room.torch)
        for header, name in sorted(self.owner.items()):
            path = self.root / "include/sherd" / header
            if not path.exists():
                continue
            self.check_includes(path, name, self.rooms[name].reach, self.rooms[name].torch)
            for line, _, what in includes(path):
                if "/" in what and what.split("/")[0] in self.rooms:
                    self.fault(path, line, f"a public header includes {what}, which is not installed")
        without_torch = {name for name, room in self.rooms.items() if not room.torch}
        for path in cpp_files(self.root / "tools"):
            if path.parent.name != "ranks":
                self.check_includes(path, "tools", without_torch, torch=False)
        for folder in ("bench", "examples", "tools/ranks"):
            self.check_public_only(folder)
        return self.faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    checker = Checker(root)
    faults = checker.run()
    for fault in faults:
        print(fault)
    print(f"check_rooms: {len(checker.rooms)} rooms, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
