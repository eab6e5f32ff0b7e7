"""Checkpoints of a run in one folder: which are kept, and which one to go on from."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch

from . import _C
from ._checkpoint import _asked, _because_of, _filled, _Kept, _pickled, _states_of
from ._world import init


class CheckpointManager:
    """Checkpoints of a run are the folders `step-<number>` of one folder. After a save the newest `keep_last` stay (0: all), those
    whose step is a multiple of `keep_every`, and those whose blocks they use: with `incremental`, each is saved on the one before
    it. What was saved last is the newest, whatever its step; damaged ones do not count. All ranks make one and call it alike.

    `save`, `save_async` and `resume` take a module and its optimizer, whose states are `{"model": ..., "optimizer": ..., "step": ...}` as
    C++ programs save them, too. For more, give a state to `save` and to `load_latest`.

    >>> import tempfile, torch, sherd
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpoints = sherd.CheckpointManager(folder.name, keep_last=2, keep_every=4)
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> step = checkpoints.resume(model, optimizer) or 0       # nothing is there the first time
    >>> while step < 7:
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimizer.step()
    ...     step += 1
    ...     _ = checkpoints.save(step, model, optimizer)
    >>> checkpoints.steps()
    [4, 6, 7]
    >>> checkpoints.resume(model, optimizer)
    7
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep_last: int = 0,
        keep_every: int = 0,
        incremental: bool = False,
        group: _C.Group | None = None,
        give_up_after: float | None = None,
    ) -> None:
        self._manager = _C.CheckpointManager(init(), os.fspath(folder), keep_last, keep_every, incremental, group, give_up_after)

    def save(
        self, step: int, state: dict[Any, Any] | torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> _C.SaveResult:
        """Saves the state, or a module and its optimizer, as `step-<step>`; then removes what is not kept."""
        states = _state_of(step, state, optimizer)
        with _because_of(states):
            return self._manager.save(step, states, _pickled)

    def save_async(
        self, step: int, state: dict[Any, Any] | torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> _C.SaveFuture:
        """The same in the background: returns when a copy is made. Older ones are removed when the next save begins, or by
        `wait()`: only then is this one known to be there.
        """
        states = _state_of(step, state, optimizer)
        with _because_of(states):
            return self._manager.save_async(step, states, _pickled)

    def wait(self) -> None:
        """Returns when no save is under way; raises what went wrong with the last one."""
        self._manager.wait()

    def steps(self) -> list[int]:
        """The steps that are there, ascending, damaged ones among them."""
        return self._manager.steps()

    def path_of(self, step: int) -> str:
        return self._manager.path_of(step)

    def load_latest(
        self,
        state_dict: dict[Any, Any],
        *,
        strict: bool = True,
        verify: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> int | None:
        """Fills the state from the newest checkpoint that is not damaged, and returns its step; None where there are none at all.
        Those that are skipped are named in `warnings`. Raises RuntimeError where all are damaged (the state may be filled in part
        then) and where the storage fails, and ValueError for a state that does not fit.
        """
        states = _states_of(state_dict)
        kept = _Kept()
        with _because_of(states):
            step, loaded = self._manager.load_latest(states, strict, verify, progress, kept.pickled, kept.unpickled)
        if step is not None:
            _filled(state_dict, states, loaded)
        return step

    def resume(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int | None:
        """Fills the module and its optimizer from the newest checkpoint that is not damaged, and returns its step; None where
        there are none at all. Raises as `load_latest`.
        """
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict  # which takes a second to import

        steps_alone = _steps_alone(optimizer)
        state = _state_of(0, module, optimizer) if steps_alone else {"model": _asked(module.state_dict), "optimizer": None, "step": 0}
        step = self.load_latest(state)
        if step is None:
            return None
        # The module's tensors are filled; the optimizer has its numbers yet to come.
        if steps_alone:
            set_optimizer_state_dict(module, optimizer, state["optimizer"])
        else:
            optimizer.load_state_dict(_by_number(state["optimizer"], module, optimizer))
        return step

    @property
    def warnings(self) -> list[str]:
        """The checkpoints that were skipped, and why; and what was not removed because the storage failed."""
        return self._manager.warnings()


def _steps_alone(optimizer: torch.optim.Optimizer) -> bool:
    """Whether torch's functions can make the state that an optimizer has after its first step. One whose steps need a closure
    (LBFGS) takes what is stored, however long its lists are.
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is None or closure.default is not inspect.Parameter.empty


def _optimizer_state(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """By the names of the parameters."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    if _steps_alone(optimizer) or optimizer.state:
        return dict(get_optimizer_state_dict(module, optimizer))
    names = iter(_names(module, optimizer))
    groups = [{**group, "params": [next(names) for _ in group["params"]]} for group in optimizer.param_groups]
    return {"state": {}, "param_groups": groups}


def _names(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Of an optimizer's parameters, in its order."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    return [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]


def _by_number(
    state: dict[str, Any], module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """An optimizer's state by the names of its parameters in the form of `optimizer.state_dict()`."""
    numbers = {name: number for number, name in enumerate(_names(module, optimizer))}
    return {
        "state": {numbers[name]: values for name, values in state.get("state", {}).items()},
        "param_groups": [{**group, "params": [numbers[name] for name in group["params"]]} for group in state["param_groups"]],
    }


def _state_of(
    step: int, state: dict[Any, Any] | torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> dict[Any, Any]:
    if isinstance(state, torch.nn.Module):
        if optimizer is None:
            raise ValueError(
                "CheckpointManager: a module without its optimizer\n"
                '  help: save(step, module, optimizer), or a state: save(step, {"model": module})'
            )
        return {
            "model": _asked(state.state_dict),
            "optimizer": _asked(lambda: _optimizer_state(state, optimizer)),
            "step": step,
        }
    if optimizer is not None:
        raise ValueError(
            "CheckpointManager: an optimizer beside a state\n  help: save(step, module, optimizer), or all of it in the state"
        )
    return _states_of(state)
