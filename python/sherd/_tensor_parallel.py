"""Tensor parallel: styles for the modules of torch.nn, as in torch.distributed.tensor.parallel."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch

from . import _C
from ._arguments import Placement, mesh_or_current
from ._errors import error_text
from ._moving import redistribute
from ._tensor import distribute_parameter_, from_local, to_local

Module = TypeVar("Module", bound=torch.nn.Module)
Layouts = Placement | None | Sequence[Placement | None]


def _bring(tensor: Any, mesh: _C.DeviceMesh, plain: Placement | None, wanted: Placement | None) -> Any:
    """The tensor with placement `wanted` on the mesh's axis, other axes as they are; a plain one is `plain` before."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if not _C.is_dtensor(tensor):
        if plain is None and not tensor.is_floating_point():
            return tensor  # ids, which every rank has
        tensor = from_local(tensor, mesh, [plain if plain is not None else _C.Replicate()])
    own = _C.mesh_of(tensor)
    if wanted is None:
        return tensor
    if own == mesh:
        axis = 0
    elif mesh.mesh_dim_names and own.mesh_dim_names and mesh.mesh_dim_names[0] in own.mesh_dim_names:
        axis = own.mesh_dim_names.index(mesh.mesh_dim_names[0])
    else:
        return tensor  # it counts as replicated over an axis that its mesh lacks
    placements = list(_C.placements_of(tensor))
    if isinstance(wanted, _C.Shard) and wanted.dim < 0:
        wanted = _C.Shard(wanted.dim + tensor.dim())
    placements[axis] = wanted
    return redistribute(tensor, placements=placements)


def _local(value: Any) -> Any:
    return to_local(value) if isinstance(value, torch.Tensor) and _C.is_dtensor(value) else value


def _listed(layouts: Layouts) -> list[Placement | None]:
    return list(layouts) if isinstance(layouts, Sequence) else [layouts]


def _each(values: Any, mesh: _C.DeviceMesh, plain: Layouts, wanted: Layouts, local: bool) -> Any:
    """The tensors of a call's arguments or results, by place; what has no layout is left alone."""
    many = isinstance(values, tuple | list)
    items = list(values) if many else [values]
    before, after = _listed(plain), _listed(wanted)
    for i, layout in enumerate(after):
        if i >= len(items):
            break
        if layout is not None or (i < len(before) and before[i] is not None):
            items[i] = _bring(items[i], mesh, before[i] if i < len(before) else None, layout)
            items[i] = _local(items[i]) if local else items[i]
    return type(values)(items) if many else items[0]


@dataclasses.dataclass(frozen=True)
class ColwiseParallel:
    """A Linear by its outputs, an Embedding by its columns. The input is brought to Replicate."""

    input_layouts: Placement | None = None
    output_layouts: Placement = dataclasses.field(default_factory=lambda: _C.Shard(-1))
    use_local_output: bool = False


@dataclasses.dataclass(frozen=True)
class RowwiseParallel:
    """A Linear by its inputs, an Embedding by its rows; the partial results are summed up."""

    input_layouts: Placement | None = None
    output_layouts: Placement = dataclasses.field(default_factory=lambda: _C.Replicate())
    use_local_output: bool = False


@dataclasses.dataclass(frozen=True)
class SequenceParallel:
    """Any module that treats the places of a sequence alike: input and output are cut along `sequence_dim`."""

    sequence_dim: int = 1
    use_local_output: bool = False


@dataclasses.dataclass(frozen=True)
class PrepareModuleInput:
    """The arguments of a module are brought to `desired_input_layouts`; plain ones are what `input_layouts` says."""

    input_layouts: Layouts = None
    desired_input_layouts: Layouts = None
    use_local_output: bool = False


@dataclasses.dataclass(frozen=True)
class PrepareModuleOutput:
    """The same for the results of a module."""

    output_layouts: Layouts = None
    desired_output_layouts: Layouts = None
    use_local_output: bool = False


@dataclasses.dataclass(frozen=True)
class PrepareModuleInputOutput:
    input_layouts: Layouts = None
    desired_input_layouts: Layouts = None
    use_local_input: bool = False
    output_layouts: Layouts = None
    desired_output_layouts: Layouts = None
    use_local_output: bool = False


ParallelStyle = (
    ColwiseParallel
    | RowwiseParallel
    | SequenceParallel
    | PrepareModuleInput
    | PrepareModuleOutput
    | PrepareModuleInputOutput
)


@dataclasses.dataclass
class _Effect:
    """What a style does to a module: where its parameters lie, and what surrounds its forward."""

    parameters: dict[str, Placement] = dataclasses.field(default_factory=dict)
    plain_input: Layouts = None
    wanted_input: Layouts = None
    local_input: bool = False
    plain_output: Layouts = None
    wanted_output: Layouts = None
    local_output: bool = False


def _effect_of(name: str, module: torch.nn.Module, style: ParallelStyle) -> _Effect:
    if isinstance(style, ColwiseParallel | RowwiseParallel):
        columns = isinstance(style, ColwiseParallel)
        if isinstance(module, torch.nn.Linear):
            places: dict[str, Placement] = {"weight": _C.Shard(0 if columns else 1)}
            if columns:
                places["bias"] = _C.Shard(0)
            wanted: Placement = _C.Replicate() if columns else _C.Shard(-1)
        elif isinstance(module, torch.nn.Embedding):
            places, wanted = {"weight": _C.Shard(1 if columns else 0)}, _C.Replicate()
        else:
            raise ValueError(
                error_text("parallelize_module", f"{type(style).__name__} takes Linear and Embedding",
                           "give the style to the layers inside: \"layers.*.fc1\"",
                           module=f"{name or 'the module itself'}, a {type(module).__name__}")
            )
        return _Effect(places, style.input_layouts, wanted, False, None, style.output_layouts, style.use_local_output)
    if isinstance(style, SequenceParallel):
        cut = _C.Shard(style.sequence_dim)
        return _Effect({}, None, cut, False, None, cut, style.use_local_output)
    if isinstance(style, PrepareModuleInput):
        return _Effect({}, style.input_layouts, style.desired_input_layouts, style.use_local_output)
    if isinstance(style, PrepareModuleOutput):
        return _Effect({}, None, None, False, style.output_layouts, style.desired_output_layouts,
                       style.use_local_output)
    return _Effect({}, style.input_layouts, style.desired_input_layouts, style.use_local_input, style.output_layouts,
                   style.desired_output_layouts, style.use_local_output)


def _surround(module: torch.nn.Module, mesh: _C.DeviceMesh, effect: _Effect) -> None:
    def before(_: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
        return _each(inputs, mesh, effect.plain_input, effect.wanted_input, effect.local_input)

    def after(_: torch.nn.Module, __: Any, outputs: Any) -> Any:
        return _each(outputs, mesh, effect.plain_output, effect.wanted_output, effect.local_output)

    if effect.plain_input is not None or effect.wanted_input is not None:
        module.register_forward_pre_hook(before)
    if effect.plain_output is not None or effect.wanted_output is not None:
        module.register_forward_hook(after)


def parallelize_module(
    module: Module,
    device_mesh: _C.DeviceMesh | None,
    plan: ParallelStyle | Mapping[str, ParallelStyle],
) -> Module:
    """Cuts the layers of a module over a mesh of one axis, in place, and returns the module.

    `plan`: styles by the names of modules, with wildcards, or one style for the module itself. What the plan does not
    name is replicated, so that an optimizer has DTensors alone. Outputs stay DTensors, unless `use_local_output`.

    >>> import torch, sherd
    >>> def train(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    ...     model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    ...     plan = {"0": sherd.ColwiseParallel(), "2": sherd.RowwiseParallel()}
    ...     sherd.parallelize_module(model, mesh, plan)
    ...     return sherd.placements(model[2].weight), sherd.placements(model(torch.ones(3, 4)))
    >>> sherd.spawn(2, train)[0]
    ((Shard(1),), (Replicate(),))
    """
    operation = "parallelize_module"
    mesh = mesh_or_current(operation, device_mesh)
    if mesh.ndim != 1:
        raise ValueError(error_text(operation, "a mesh of one axis is needed", 'mesh["tp"]', mesh=mesh))
    styles = plan if isinstance(plan, Mapping) else {"": plan}
    modules = dict(module.named_modules())
    chosen: list[tuple[torch.nn.Module, _Effect]] = []
    places: dict[int, Placement] = {}
    for pattern, style in styles.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(
                error_text(operation, "a style is needed", f'{{"{pattern}": sherd.ColwiseParallel()}}',
                           given=type(style).__name__)
            )
        parts = pattern.split(".")
        named = [
            name for name in modules
            if len(name.split(".")) == len(parts)
            and all(fnmatch.fnmatchcase(own, part) for own, part in zip(name.split("."), parts))
        ]
        if not named:
            raise ValueError(
                error_text(operation, "the plan names no module", "names are those of named_modules()",
                           name=pattern, modules=", ".join([name for name in modules if name][:8]))
            )
        for name in named:
            effect = _effect_of(name, modules[name], style)
            chosen.append((modules[name], effect))
            for key, place in effect.parameters.items():
                parameter = getattr(modules[name], key)
                if parameter is None:
                    continue
                if places.setdefault(id(parameter), place) != place:
                    raise ValueError(
                        error_text(operation, "a parameter is placed in two ways",
                                   "one style for the modules that share it", parameter=f"{name}.{key}")
                    )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if _C.is_dtensor(tensor):
            raise ValueError(
                error_text(operation, "the module is distributed already",
                           "parallelize_module first, then sherd.fully_shard or sherd.data_parallel",
                           parameter=name, it_is=_C.describe(tensor))
            )
    for tensor in [*module.parameters(), *module.buffers()]:
        distribute_parameter_(tensor, mesh, [places.get(id(tensor), _C.Replicate())])
    for owner, effect in chosen:
        _surround(owner, mesh, effect)
    return module
