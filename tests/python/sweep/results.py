"""Results on disk: one JSON object a line, appended as they come, so that a sweep can go on where it was ended."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.cases import CaseId
from sweep.worker import Task


@dataclass(frozen=True)
class Record:
    case: CaseId
    peer: str
    outcome: str
    message: str = ""
    phase: str = ""
    ranks: str = ""
    inputs: str = ""
    outputs: list[str] = field(default_factory=list)
    hung_once: bool = False  # and not when it was tried again

    @property
    def good(self) -> bool:
        return self.outcome in ("right", "rounding")

    @property
    def placements(self) -> set[str]:
        """All that the results have, of any mesh axis: "S0" and its like, "R", "P"."""
        return {part for text in self.outputs if text != "plain" for part in text.strip("()").split(", ")}

    @property
    def sharded(self) -> bool:
        """Does any result stay sharded?"""
        return bool(self.placements - {"R", "P"})

    @property
    def partial(self) -> bool:
        return "P" in self.placements


class ResultFile:
    def __init__(self, path: Path, fresh: bool = False) -> None:
        self._path = path
        self._done: set[str] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        for line in _lines(path):
            if "done" in line:
                self._done.add(_key(Task(**line["done"])))
        self._file = path.open("a", buffering=1)

    def is_done(self, task: Task) -> bool:
        return _key(task) in self._done

    def add(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")

    def done(self, task: Task) -> None:
        self._done.add(_key(task))
        self.add({"done": dataclasses.asdict(task)})


def read(path: Path) -> list[Record]:
    """All records; of a case that was tried more than once, the last one."""
    found: dict[tuple[str, str], Record] = {}
    for line in _lines(path):
        if "case" in line:
            found[line["peer"], line["case"]] = Record(**(line | {"case": CaseId.parse(line["case"])}))
    return list(found.values())


def _key(task: Task) -> str:
    return json.dumps(dataclasses.asdict(task), sort_keys=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The last line may be half a line, where a sweep was ended."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
