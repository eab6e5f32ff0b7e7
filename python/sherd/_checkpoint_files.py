"""Checkpoints as they lie in files, of any format: looked at, checked, compared and written anew, without loading them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Union

from . import _C
from ._arguments import Placement

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int], None]


def inspect_checkpoint(path: Path) -> _C.CheckpointInfo:
    """What is in a checkpoint: a folder of torch.distributed.checkpoint or of sherd, safetensors, a file of torch.save. Reads
    its metadata alone.

    >>> import tempfile, torch, sherd
    >>> folder = tempfile.TemporaryDirectory()
    >>> torch.save({"model": {"w": torch.arange(6.0).reshape(2, 3)}, "step": 7}, f"{folder.name}/a.pt")
    >>> info = sherd.inspect_checkpoint(f"{folder.name}/a.pt")
    >>> info.format, info.tensors, info.objects
    ('torch.save', [<tensor model.w f32[2, 3]>], [<object step = 7>])
    """
    return _C.inspect_checkpoint(os.fspath(path))


def verify_checkpoint(path: Path, *, progress: Progress | None = None) -> _C.VerifyResult:
    """Reads every byte and compares digests and CRCs; looks for parts that are stored nowhere or twice. `damage` has all that
    is wrong.
    """
    return _C.verify_checkpoint(os.fspath(path), progress)


def diff_checkpoints(
    path: Path,
    other: Path,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    ignore_dtypes: bool = False,
    progress: Progress | None = None,
) -> _C.DiffResult:
    """How two checkpoints differ, by name, whatever their formats and however their tensors are cut."""
    return _C.diff_checkpoints(os.fspath(path), os.fspath(other), atol, rtol, ignore_dtypes, progress)


def rewrite_checkpoint(
    source: Path | Sequence[Path],
    target: Path,
    *,
    format: str | None = None,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    ranks: int = 0,
    mesh: _C.Mesh | None = None,
    placements: Mapping[str, Sequence[Placement]] | Sequence[Placement] = (),
    file_bytes: int = 0,
    overwrite: bool = False,
    verify: bool = True,
    skip_damaged: bool = False,
    progress: Progress | None = None,
) -> _C.RewriteResult:
    """Writes one or several checkpoints anew, from file to file, in memory that does not depend on their size: in another
    `format` ("dcp", "safetensors", "torch.save"; else by the ending of `target`), for other ranks (`ranks`, or `mesh` and
    `placements`), with other names. In patterns `*` stands for any text.

    >>> import tempfile, torch, sherd
    >>> folder = tempfile.TemporaryDirectory()
    >>> torch.save({"model": {"w": torch.arange(6.0)}, "step": 7}, f"{folder.name}/a.pt")
    >>> result = sherd.rewrite_checkpoint(f"{folder.name}/a.pt", f"{folder.name}/b", rename={"model.*": "net.*"}, ranks=2)
    >>> result.tensors, result.objects, result.files
    (1, 1, 2)
    >>> [chunk.box for chunk in sherd.inspect_checkpoint(f"{folder.name}/b").tensors[0].chunks]
    [[0:3], [3:6]]
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    named = placements if isinstance(placements, Mapping) else {"*": placements}
    return _C.rewrite_checkpoint(
        [os.fspath(path) for path in sources],
        os.fspath(target),
        format,
        list(only),
        list(drop),
        list((rename or {}).items()),
        mesh,
        [(pattern, list(each)) for pattern, each in named.items()],
        ranks,
        file_bytes,
        overwrite,
        verify,
        skip_damaged,
        progress,
    )
