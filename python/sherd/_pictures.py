"""Tensors drawn: which rank holds which part. And pages about a run."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _C
from ._arguments import check_tensor
from ._comm_debug import CommDebugMode


class Svg(str):
    """A picture as text: write it to a file, or leave it to a notebook to show."""

    def _repr_svg_(self) -> str:
        return str(self)


class Html(str):
    """A page as text: write it to a file, or leave it to a notebook to show."""

    def _repr_html_(self) -> str:
        # The body alone: the page's style is not for the notebook around it.
        return self[self.index("<body>") + len("<body>") : self.index("</body>")]


def _speaks(tensor: torch.Tensor) -> bool:
    """True on the first of the ranks that hold a tensor, and where it is this process's own."""
    world = _C.find_world()
    if world is None:
        return True
    if _C.is_dtensor(tensor):
        return _C.mesh_of(tensor).ranks[0] == world.rank
    if _C.sharded.is_sharded_tensor(tensor):
        group = _C.sharded.group(tensor)
        return group is not None and group.rank() == 0
    return True


def visualize_sharding(
    tensor: torch.Tensor, *, color: bool | None = None, max_width: int = 100, max_rows: int = 16, legend: bool = True
) -> None:
    """Prints which rank holds which part of a tensor. Where ranks hold it together the first of them prints.

    Ranks in one cell hold copies, as in 0,1; those of a sum have a plus between them, as in 0+1. `color` is by default
    what the terminal can do. Nothing is sent.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    ...     x = sherd.zeros(8, 6, device_mesh=mesh, placements=[sherd.Shard(0), sherd.Replicate()])
    ...     sherd.visualize_sharding(x, color=False)
    [8@dp, 6] on [dp=2, tp=2]
      0     6
    0 ┌─────┐
      │ 0,1 │
    4 ├─────┤
      │ 2,3 │
    8 └─────┘
    dp: cuts dim 0 in 2
    tp: 2 copies, whose ranks share a cell
    ranks 0,1: [0:4, 0:6]
    ranks 2,3: [4:8, 0:6]
    """
    check_tensor("visualize_sharding", tensor)
    if _speaks(tensor):
        print(_C.visualize_sharding(tensor, color, max_width, max_rows, legend), end="")


def visualize_sharding_svg(tensor: torch.Tensor, *, width: int = 640, legend: bool = True) -> Svg:
    """The same picture to scale. A notebook shows it.

    >>> import torch, sherd
    >>> sherd.visualize_sharding_svg(torch.zeros(4, 6))[:4]
    '<svg'
    """
    return Svg(_C.visualize_sharding_svg(check_tensor("visualize_sharding_svg", tensor), width, legend))


def visualize_sharding_html(tensor: torch.Tensor, *, width: int = 640, legend: bool = True) -> Html:
    """The same picture as a page that needs no other file. A notebook shows the picture.

    >>> import torch, sherd
    >>> page = sherd.visualize_sharding_html(torch.zeros(4, 6))
    >>> "f32[4, 6], not distributed" in page
    True
    """
    return Html(_C.visualize_sharding_html(check_tensor("visualize_sharding_html", tensor), width, legend))


class Report:
    """A page about a run: text, curves, bars, tables and pictures of tensors, in one file of HTML.

    Calls return the report. In texts, what stands between backticks is set as code.

    >>> import torch, sherd
    >>> report = sherd.Report("My run")
    >>> _ = report.section("Loss").chart("loss", {"4 ranks": [2.0, 1.5, 1.2]})
    >>> _ = report.section("Where it lies").picture("w", torch.zeros(4, 6))
    >>> "<h1>My run</h1>" in report.html()
    True
    """

    def __init__(self, title: str) -> None:
        self._report = _C.Report(title)

    def section(self, title: str) -> Report:
        """A heading."""
        self._report.section(title)
        return self

    def text(self, paragraph: str) -> Report:
        """A paragraph."""
        self._report.text(paragraph)
        return self

    def note(self, paragraph: str) -> Report:
        """A paragraph in small type."""
        self._report.note(paragraph)
        return self

    def chart(
        self,
        title: str,
        series: Mapping[str, Sequence[float]],
        *,
        limits: Mapping[str, Sequence[float]] | None = None,
        marks: Mapping[int, str] | None = None,
        logarithmic: bool = False,
    ) -> Report:
        """Curves over steps 1, 2, 3, ...; `limits` are dashed, `marks` stand after their steps."""
        lines = [(label, list(values), False) for label, values in series.items()]
        lines += [(label, list(values), True) for label, values in (limits or {}).items()]
        self._report.chart(title, lines, list((marks or {}).items()), logarithmic)
        return self

    def bars(
        self, title: str, parts: Sequence[str], bars: Mapping[str, Sequence[float]], *, are_bytes: bool = False
    ) -> Report:
        """Bars of stacked parts.

        >>> import sherd
        >>> _ = sherd.Report("x").bars("time", ["compute", "send"], {"rank 0": [3.0, 1.0], "rank 1": [3.0, 2.0]})
        """
        self._report.bars(title, list(parts), [(label, list(values)) for label, values in bars.items()], are_bytes)
        return self

    def memory(self, title: str, parts: Mapping[str, Iterable[torch.Tensor | None]], group: _C.Group) -> Report:
        """One bar per rank of the group: the bytes that it has of each part. Every rank calls it."""
        named = [(name, [t for t in tensors if t is not None]) for name, tensors in parts.items()]
        self._report.memory(title, named, group)
        return self

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Report:
        """A table. Columns of numbers are set to the right."""
        self._report.table(list(columns), [[str(cell) for cell in row] for row in rows])
        return self

    def picture(self, title: str, tensor: torch.Tensor | _C.Layout) -> Report:
        """A picture of a tensor or a layout. Those that follow each other stand side by side."""
        self._report.picture(title, tensor if isinstance(tensor, _C.Layout) else check_tensor("Report.picture", tensor))
        return self

    def communication(
        self, sent: CommDebugMode | Sequence[_C.CommRecord] | Sequence[_C.CollectiveCall]
    ) -> Report:
        """What was sent, as bars and a table: of a `CommDebugMode` or its records by collective, axis, pass and module,
        of a `CommRecorder`'s calls by collective and group."""
        calls: Any = sent.records if isinstance(sent, CommDebugMode) else sent
        self._report.communication(list(calls))
        return self

    def html(self) -> str:
        """The page."""
        return self._report.html()

    def write(self, path: str | os.PathLike[str], group: _C.Group | None = None) -> None:
        """Writes the page. With a group every rank of it calls, the first writes, and where it cannot all raise."""
        if group is None:
            self._report.write(os.fspath(path))
        else:
            self._report.write(os.fspath(path), group)

    def _repr_html_(self) -> str:
        frame = '<iframe srcdoc="{}" style="width: 100%; height: 640px; border: 0"></iframe>'
        return frame.format(html.escape(self.html()))


def bytes_here(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes that this rank has of these tensors, distributed or not.

    >>> import torch, sherd
    >>> with sherd.fake_world(0, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     sherd.bytes_here([sherd.zeros(8, 2, device_mesh=mesh, placements=[sherd.Shard(0)]), None])
    16
    """
    return _C.bytes_here([check_tensor("bytes_here", tensor) for tensor in tensors if tensor is not None])
