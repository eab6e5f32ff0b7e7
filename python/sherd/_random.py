"""Random numbers that do not know about sharding: a number depends on the seed, the draw and the element's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _C
from ._arguments import Placement, checked_placements, checked_shape, mesh_or_current
from ._errors import error_text

_DEFAULT_SEED = 67280421310721
_MODES = ("by_position", "offset_based", "torch_exact")


def _checked_mode(operation: str, mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(error_text(operation, "no such mode", f"one of {', '.join(_MODES)}", mode=repr(mode)))
    return mode


def Generator(
    seed: int = _DEFAULT_SEED, *, mode: str = "by_position", device_mesh: _C.DeviceMesh | None = None
) -> torch.Generator:
    """A torch.Generator that draws by an element's place: for `generator=` of random operators, also of plain tensors.

    `mode` is "by_position", "torch_exact" (what torch draws on one device) or "offset_based" (what torch's DTensor draws
    on CUDA). With a mesh it serves DTensors of that mesh only.

    >>> import torch, sherd
    >>> torch.rand(3, generator=sherd.Generator(7)).equal(torch.empty(3).uniform_(generator=sherd.Generator(7)))
    True
    """
    return _C.make_generator(seed, _checked_mode("Generator", mode), device_mesh)


def manual_seed(seed: int, *, mode: str = "by_position", device_mesh: _C.DeviceMesh | None = None) -> None:
    """Seeds what DTensors draw from: for all of this rank's world, or for one mesh. Every rank calls it alike.

    >>> import sherd
    >>> def draw(rank, ranks):
    ...     mesh = sherd.init_device_mesh("cpu", (ranks,))
    ...     sherd.manual_seed(7)
    ...     return sherd.full_tensor(sherd.rand(1000, device_mesh=mesh, placements=[sherd.Shard(0)]))
    >>> one, three = (sherd.spawn(n, lambda rank: draw(rank, n))[0] for n in (1, 3))
    >>> one.equal(three)
    True
    """
    _C.manual_seed(seed, _checked_mode("manual_seed", mode), device_mesh)


def current_generator(device_mesh: _C.DeviceMesh | None = None) -> torch.Generator:
    """What DTensors of the mesh draw from; without one, the default of this rank's world.

    >>> import sherd
    >>> with sherd.fake_world(0, 1):
    ...     sherd.manual_seed(7)
    ...     state = sherd.current_generator().get_state()
    ...     sherd.current_generator().set_state(state).initial_seed()
    7
    """
    return _C.current_generator(device_mesh)


class generator_scope(_C.GeneratorScope):
    """Inside `with`, DTensors of this thread draw from another generator.

    >>> import sherd
    >>> with sherd.fake_world(0, 1):
    ...     with sherd.generator_scope(sherd.Generator(3)):
    ...         sherd.current_generator().initial_seed()
    3
    """


def rand(
    *size: Any,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Uniform in [0, 1): the same numbers for every mesh and placement; every rank draws its own part."""
    mesh = mesh_or_current("rand", device_mesh)
    wanted = checked_placements("rand", placements, mesh)
    return _C.rand(checked_shape("rand", size), mesh, wanted, dtype, requires_grad, generator)


def randn(
    *size: Any,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Normal with mean 0 and deviation 1; see rand()."""
    mesh = mesh_or_current("randn", device_mesh)
    wanted = checked_placements("randn", placements, mesh)
    return _C.normal(0, 1, checked_shape("randn", size), mesh, wanted, dtype, requires_grad, generator)


def normal(
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Normal; see rand()."""
    mesh = mesh_or_current("normal", device_mesh)
    wanted = checked_placements("normal", placements, mesh)
    return _C.normal(mean, std, checked_shape("normal", size), mesh, wanted, dtype, requires_grad, generator)


def randint(
    low: int,
    high: int,
    size: Sequence[int],
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """Whole numbers in [low, high); see rand()."""
    mesh = mesh_or_current("randint", device_mesh)
    wanted = checked_placements("randint", placements, mesh)
    return _C.randint(low, high, checked_shape("randint", size), mesh, wanted, dtype, requires_grad, generator)


def randperm(
    n: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """A permutation of 0 ... n - 1. Each rank computes its own rows, and nothing is sent.

    >>> import sherd
    >>> with sherd.fake_world(0, 1):
    ...     mesh = sherd.init_device_mesh("cpu", (1,))
    ...     sorted(sherd.to_local(sherd.randperm(5, device_mesh=mesh)).tolist())
    [0, 1, 2, 3, 4]
    """
    mesh = mesh_or_current("randperm", device_mesh)
    return _C.randperm(n, mesh, checked_placements("randperm", placements, mesh), dtype, generator)
