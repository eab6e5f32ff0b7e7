"""Checkpoints: any mesh to any mesh, in PyTorch's files."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import _C
from ._world import init

Progress = Callable[[int, int], None]
_telling: list[_C.SaveFuture] = []  # saves whose threads call Python


class OpaqueObject:
    """A Python object of a checkpoint that torch would have to run code for to make. `load()` does so, where the files are
    trusted; saved again, it is written back as it was.
    """

    def __init__(self, archive: bytes) -> None:
        self.archive = archive

    def load(self) -> Any:
        return torch.load(io.BytesIO(self.archive), weights_only=False)

    def __repr__(self) -> str:
        return f"OpaqueObject({len(self.archive)} bytes)"


def save(
    state_dict: dict[Any, Any],
    path: str | os.PathLike[str],
    *,
    group: _C.Group | None = None,
    overwrite: bool = True,
    base: str | os.PathLike[str] = "",
    format: str = "automatic",
    compress: bool = False,
    progress: Progress | None = None,
    give_up_after: float | None = None,
) -> _C.SaveResult:
    """Writes one checkpoint together with the other ranks: nested dicts and lists of tensors (plain, DTensors, ShardedTensors,
    LocalShardsWrappers), numbers, texts and other values, and objects that have `state_dict` and `load_state_dict`.
    `torch.distributed.checkpoint.load` reads it. With `base`, blocks that another checkpoint has are not written again; such a
    one needs its base, and only sherd reads it. `compress` is PyTorch's ZStandard extension, which `load` of PyTorch undoes.

    `format` is "dcp", a folder that `torch.distributed.checkpoint` reads; "safetensors"; "torch.save"; or "automatic": by the path,
    one file where it ends in `.safetensors`, `.pt`, `.pth` or `.bin`, else "dcp". A folder of safetensors has files for each rank,
    as `HuggingFaceStorageReader` reads them; what is no tensor is in their metadata as JSON.

    `progress(bytes, total)` is called now and then with what this rank has written; what it raises ends the save on all ranks.
    After `give_up_after` seconds the others no longer wait for a rank that is still writing, and raise: for a storage that hangs.

    >>> import tempfile, torch, sherd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sherd.save({"w": torch.arange(4.0), "step": 7}, f"{folder}/ck")
    ...     state = {"w": torch.zeros(4), "step": 0}
    ...     _ = sherd.load(state, f"{folder}/ck")
    >>> state
    {'w': tensor([0., 1., 2., 3.]), 'step': 7}
    """
    arguments = _C.SaveArguments(group, overwrite, os.fspath(base), format, compress, progress, give_up_after)
    states = _states_of(state_dict)
    with _because_of(states):
        return _C.save(init(), states, os.fspath(path), arguments, _pickled)


def save_async(
    state_dict: dict[Any, Any],
    path: str | os.PathLike[str],
    *,
    group: _C.Group | None = None,
    overwrite: bool = True,
    base: str | os.PathLike[str] = "",
    format: str = "automatic",
    compress: bool = False,
    progress: Progress | None = None,
    give_up_after: float | None = None,
) -> _C.SaveFuture:
    """The same in the background. Returns when a copy of the state is made; `wait()` of what it returns tells how it ended, or the
    next call does. Where the last one is not over, waits for it first. `progress` is called by another thread.

    >>> import tempfile, torch, sherd
    >>> told = []
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     future = sherd.save_async({"w": torch.zeros(10)}, f"{folder}/ck", progress=lambda done, total: told.append((done, total)))
    ...     _ = future.wait()
    >>> told[-1][0] == told[-1][1]
    True
    """
    arguments = _C.SaveArguments(group, overwrite, os.fspath(base), format, compress, progress, give_up_after)
    states = _states_of(state_dict)
    with _because_of(states):
        future = _C.save_async(init(), states, os.fspath(path), arguments, _pickled)
    if progress is not None:
        _telling[:] = [other for other in _telling if not other.ready()] + [future]
    return future


def load(
    state_dict: dict[Any, Any],
    path: str | os.PathLike[str],
    *,
    group: _C.Group | None = None,
    strict: bool = True,
    verify: bool = True,
    progress: Progress | None = None,
) -> _C.LoadResult:
    """Fills the state from a checkpoint, whatever mesh it was saved on: tensors in place, other values replaced. Keys that the
    checkpoint lacks are an error unless `strict` is off. With `verify`, digests are compared of everything that is read.
    `progress(bytes, total)` is called now and then with what this rank has of what it wants.
    """
    states = _states_of(state_dict)
    kept = _Kept()
    with _because_of(states):
        loaded, result = _C.load(
            init(), states, os.fspath(path), group, strict, verify, progress, kept.pickled, kept.unpickled
        )
    _filled(state_dict, states, loaded)
    return result


def load_state_dict(
    path: str | os.PathLike[str],
    names: Sequence[str] = (),
    *,
    verify: bool = True,
    progress: Progress | None = None,
) -> dict[Any, Any]:
    """The whole checkpoint, or the keys in `names` and what is below them: plain tensors on the CPU. Each rank reads for itself.

    >>> import tempfile, torch, sherd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sherd.save({"model": {"w": torch.ones(2), "b": torch.zeros(1)}, "step": 7}, f"{folder}/ck")
    ...     sherd.load_state_dict(f"{folder}/ck", ["model.w", "step"])
    {'model': {'w': tensor([1., 1.])}, 'step': 7}
    """
    return _C.load_state_dict(os.fspath(path), list(names), verify, progress, _unpickled)


@atexit.register
def _tell_the_rest() -> None:
    """A thread that saves cannot call Python any more once the interpreter ends. How a save ended is told by its future alone."""
    for future in _telling:
        with contextlib.suppress(Exception):
            future.wait()


def _filled(state_dict: dict[Any, Any], states: dict[Any, Any], loaded: dict[Any, Any]) -> None:
    """Puts what was loaded into `states`, what `_states_of` made of `state_dict`, where it belongs."""
    for key, value in state_dict.items():
        if _is_stateful(value):
            value.load_state_dict(_put_back(states[key], loaded[key]))
        else:
            state_dict[key] = _put_back(value, loaded[key])


def _is_stateful(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


class _NoState:
    """In place of a state that could not be had on this rank. It cannot be pickled, which all ranks are told: none of them waits
    for one that raised before they met.
    """

    not_there = "an object of this rank did not give its state"

    def __init__(self, error: Exception) -> None:
        self.error = error


def _asked(state: Callable[[], Any]) -> Any:
    try:
        return state()
    except Exception as error:
        return _NoState(error)


@contextlib.contextmanager
def _because_of(states: dict[Any, Any]) -> Iterator[None]:
    """What a state_dict() of this rank raised is the cause of what all ranks raise, with its traceback."""
    failure = next((value.error for value in states.values() if isinstance(value, _NoState)), None)
    try:
        yield
    except Exception as error:
        if failure is None:
            raise
        raise error from failure
    if failure is not None:  # nobody needed the state: there are no checkpoints to load
        raise failure


def _states_of(state_dict: dict[Any, Any]) -> dict[Any, Any]:
    return {key: _asked(value.state_dict) if _is_stateful(value) else value for key, value in state_dict.items()}


def _put_back(value: Any, loaded: Any) -> Any:
    """`loaded` in the containers that `value` has: whoever holds one of them sees the change."""
    if isinstance(loaded, _Pickle):
        return loaded.in_place_of(value)
    if isinstance(value, torch.Tensor) and isinstance(loaded, torch.Tensor):
        return value  # filled in place
    if isinstance(loaded, dict):
        into = value if isinstance(value, dict) else {}
        for key, item in loaded.items():
            into[key] = _put_back(into.get(key), item)
        return into
    if isinstance(loaded, list):
        if not isinstance(value, list) or len(value) != len(loaded):
            return [_put_back(None, item) for item in loaded]
        value[:] = [_put_back(old, new) for old, new in zip(value, loaded, strict=True)]
        return value
    return loaded


def _pickled(value: Any) -> bytes:
    if isinstance(value, OpaqueObject):
        return value.archive
    if isinstance(value, _NoState):
        raise value.error
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class _Pickle:
    """A pickle that came out of a load, and the values of the state that had the same one."""

    def __init__(self, archive: bytes, values: list[Any]) -> None:
        self.archive = archive
        self.values = values

    def in_place_of(self, value: Any) -> Any:
        """The value itself where nothing else was loaded: the checkpoint lacks its key, or has the same."""
        return value if any(value is other for other in self.values) else _unpickled(self.archive)


class _Kept:
    """Makes the pickles of a state that is loaded, and remembers of what."""

    def __init__(self) -> None:
        self._values: dict[bytes, list[Any]] = {}

    def pickled(self, value: Any) -> bytes:
        archive = _pickled(value)
        self._values.setdefault(archive, []).append(value)
        return archive

    def unpickled(self, archive: bytes) -> _Pickle:
        return _Pickle(archive, self._values.get(archive, []))


def _unpickled(archive: bytes) -> Any:
    try:
        return torch.load(io.BytesIO(archive), weights_only=True)
    except pickle.UnpicklingError:
        return OpaqueObject(archive)
