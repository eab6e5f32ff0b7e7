"""The transport shm as a backend of torch.distributed: `init_process_group("shm")`, for CPU tensors on one host."""

from __future__ import annotations

from typing import Any

import torch

from . import _C


def register() -> None:
    """Makes the name known to torch.distributed, once."""
    distributed = torch.distributed
    if not distributed.is_available() or "shm" in distributed.Backend.backend_list:
        return
    distributed.Backend.register_backend("shm", _make_backend, extended_api=True, devices=["cpu"])


def _make_backend(group: Any, _options: Any) -> Any:
    """What torch.distributed calls for each process group over shm."""
    return _C.make_shared_memory_backend(
        group.store, group.group_rank, group.group_size, group.timeout.total_seconds(), group.global_ranks_in_group
    )
