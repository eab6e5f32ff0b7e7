"""ShardedTensors as parameters of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from . import _C
from ._errors import error_text
from ._sharded_arguments import checked_spec, group_options

if TYPE_CHECKING:
    from .sharded import ShardingSpec


class Sharder:
    """Shards a whole module in its own way: `shard` returns what takes its place."""

    def shard(self, module: torch.nn.Module) -> torch.nn.Module:
        raise NotImplementedError


@dataclass
class ShardingPlan:
    """How a module is sharded, by full names: of a parameter a spec, of a module a Sharder.

    `output_plan` cuts the outputs of modules anew, and `return_local_tensor` gives them as this rank's plain part.
    """

    plan: dict[str, Any]
    output_plan: dict[str, Any] = field(default_factory=dict)
    return_local_tensor: list[str] = field(default_factory=list)


class ShardingPlanner:
    """Makes plans for modules."""

    def build_plan(self, module: torch.nn.Module) -> ShardingPlan:
        raise NotImplementedError


def _parameter_of(operation: str, module: torch.nn.Module, name: str) -> torch.Tensor:
    if not hasattr(module, name):
        raise AttributeError(
            error_text(operation, "the module has no such parameter", "a name of module.named_parameters()",
                       name=name, module=type(module).__name__)
        )
    parameter = getattr(module, name)
    if not isinstance(parameter, torch.Tensor):
        raise ValueError(
            error_text(operation, "this is no parameter", "a name of module.named_parameters()",
                       name=name, given=type(parameter).__name__)
        )
    return parameter


def _shard_in_place(
    parameter: torch.Tensor, spec: _C.sharded.ShardingSpec, src_rank: int, options: _C.sharded.GroupOptions
) -> None:
    parameter.data = _C.sharded.shard_tensor(parameter.detach(), spec, src_rank, options)


def shard_parameter(
    module: torch.nn.Module, param_name: str, sharding_spec: ShardingSpec, src_rank: int = 0, **options: Any
) -> None:
    """Makes a parameter of the module itself a ShardedTensor, in place: optimizers that have it see the change.

    Every rank of the group calls it; what is wrong on one of them is an error on all.
    """
    operation = "shard_parameter"
    group = group_options(operation, **options)
    found: list[tuple[torch.Tensor, _C.sharded.ShardingSpec]] = []

    def check() -> str:
        found.append((_parameter_of(operation, module, param_name), checked_spec(operation, sharding_spec)))
        return ""  # shard_tensor compares the rest

    _C.sharded.agree(group, operation, check)
    _shard_in_place(*found[0], src_rank, group)


def _check_plan(module: torch.nn.Module, plan: ShardingPlan) -> str:
    """Raises what is wrong with the plan; gives it as all ranks must have it, an entry per line."""
    operation = "shard_module"
    sharders = [name for name, entry in plan.plan.items() if isinstance(entry, Sharder)]
    lines = []
    for name, entry in plan.plan.items():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        if isinstance(entry, Sharder):
            if not last:
                raise KeyError(error_text(operation, "a Sharder needs the name of a child module", '{"tower": sharder}'))
            owner.get_submodule(last)
            lines.append(f"{name}: a Sharder")
            continue
        lines.append(f"{name}: {checked_spec(operation, entry)}")
        for path in sharders:
            if name.startswith(path + "."):
                raise RuntimeError(
                    error_text(operation, "a parameter stands inside a module that has a Sharder",
                               "leave the parameter to the Sharder", parameter=name, module=path)
                )
        _parameter_of(operation, owner, last)
    for name, spec in plan.output_plan.items():
        module.get_submodule(name)
        checked_spec(operation, spec)
    for name in plan.return_local_tensor:
        module.get_submodule(name)
    return "\n".join(lines)


def shard_module(module: torch.nn.Module, plan: ShardingPlan, src_rank: int = 0, **options: Any) -> None:
    """Carries out a plan. What is wrong with it on one rank is an error on all, before anything changes.

    >>> import torch, sherd
    >>> from sherd.sharded import ChunkShardingSpec, ShardingPlan, is_sharded_tensor, shard_module
    >>> def sharded_weight(rank):
    ...     model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    ...     shard_module(model, ShardingPlan({"0.weight": ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])}))
    ...     return is_sharded_tensor(model[0].weight)
    >>> sherd.spawn(2, sharded_weight)
    [True, True]
    """
    operation = "shard_module"
    group = group_options(operation, **options)
    _C.sharded.agree(group, operation, lambda: _check_plan(module, plan))
    for name, entry in plan.plan.items():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path)
        if isinstance(entry, Sharder):
            setattr(owner, last, entry.shard(getattr(owner, last)))
        else:
            _shard_in_place(getattr(owner, last), checked_spec(operation, entry), src_rank, group)
    for name, spec in plan.output_plan.items():
        wanted = checked_spec(operation, spec)
        module.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, wanted=wanted: _C.sharded.reshard(output, wanted)
        )
    for name in plan.return_local_tensor:
        module.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output: _C.sharded.collect_local_shard(output)
        )


def named_params_with_sharded_tensor(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The module's parameters with their names, sharded or not."""
    return list(module.named_parameters())


class ShardedOptimizer:
    """An optimizer that sees this rank's shards as plain tensors: for optimizers with kernels of their own.

    Those of torch.optim also step on ShardedTensors themselves. `state_dict` and `load_state_dict` are this rank's part.

    >>> import torch, sherd
    >>> from sherd import sharded
    >>> def step(rank):
    ...     spec = sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
    ...     w = torch.nn.Parameter(sharded.ones(spec, 4))
    ...     optimizer = sharded.ShardedOptimizer([("w", w)], torch.optim.SGD, lr=0.5)
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    ...     return w.sum().item()
    >>> sherd.spawn(2, step)
    [0.0, 0.0]
    """

    def __init__(
        self,
        named_params: Iterable[tuple[str, torch.Tensor]],
        optimizer_class: Callable[..., torch.optim.Optimizer],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.named_params = dict(named_params)
        self._shards: dict[str, list[torch.Tensor]] = {}
        for name, parameter in self.named_params.items():
            if _C.sharded.is_sharded_tensor(parameter):
                shards = _C.sharded.local_shards(parameter)
                self._shards[name] = [s.tensor.detach().requires_grad_(parameter.requires_grad) for s in shards]
            else:
                self._shards[name] = [parameter]
        self.local = optimizer_class([t for shards in self._shards.values() for t in shards], *args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, of the parameters and of their shards."""
        for parameter in self.named_params.values():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.detach_().zero_()
        self.local.zero_grad(set_to_none)

    def step(self) -> None:
        """Takes the parameters' gradients as they are."""
        for name, parameter in self.named_params.items():
            if not _C.sharded.is_sharded_tensor(parameter):
                continue
            grads = [] if parameter.grad is None else _C.sharded.local_shards(parameter.grad)
            for i, shard in enumerate(self._shards[name]):
                shard.grad = grads[i].tensor if grads else None
        self.local.step()

    def state_dict(self) -> dict[str, Any]:
        return self.local.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.local.load_state_dict(state)
