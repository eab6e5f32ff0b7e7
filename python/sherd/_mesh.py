"""Meshes of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import _C
from ._world import init


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[str, str] | None = None,
) -> _C.DeviceMesh:
    """A mesh over ranks 0, 1, 2, ... of the current world. Every rank of it calls this; nothing is communicated.

    With the device "xla" it names the devices of XLA instead, as many as there are (docs/xla.md).
    `backend_override` names another backend for some axes: `{"dp": "gloo"}`.

    >>> import sherd
    >>> with sherd.fake_world(5, 8):
    ...     mesh = sherd.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    ...     print(mesh, mesh.get_coordinate(), mesh["tp"].ranks)
    DeviceMesh(cpu, [dp=2, tp=4]) [1, 1] [4, 5, 6, 7]
    """
    if isinstance(mesh_shape, int):
        mesh_shape = (mesh_shape,)
    init()
    return _C.init_device_mesh(
        device_type, list(mesh_shape), list(mesh_dim_names or ()), list((backend_override or {}).items())
    )
