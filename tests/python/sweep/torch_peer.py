"""torch's own DTensor, on the threads that torch's tests use as ranks."""

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup, _install_threaded_pg

from sweep.placements import Placements, summand


class TorchPeer:
    name = "torch"
    shares_generator = True

    def __init__(self) -> None:
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        _install_threaded_pg()

    def run(self, ranks: int, body: Callable[[int], None]) -> None:
        store = dist.HashStore()
        threads = [threading.Thread(target=self._rank, args=(rank, ranks, store, body)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ProcessLocalGroup.reset()

    def _rank(self, rank: int, ranks: int, store: dist.Store, body: Callable[[int], None]) -> None:
        dist.init_process_group(backend="threaded", rank=rank, world_size=ranks, store=store)
        try:
            body(rank)
        except BaseException as error:  # SystemExit included: it is how torch's threads tell of another's failure
            ProcessLocalGroup.exception_handle(error)
        finally:
            dist.destroy_process_group()

    def is_echo(self, error: BaseException) -> bool:
        return isinstance(error, SystemExit) or "Test termination event" in str(error)

    def mesh(self, shape: tuple[int, ...]) -> Any:
        return init_device_mesh("cpu", shape)

    def place(self, tensor: torch.Tensor, mesh: Any, placements: Placements) -> torch.Tensor:
        kinds = [_placement(text) for text in placements]
        without_partial = [Replicate() if isinstance(kind, Partial) else kind for kind in kinds]
        placed = distribute_tensor(tensor, mesh, without_partial, src_data_rank=None)
        if kinds == without_partial:
            return placed
        local = placed.to_local()
        for axis, kind in enumerate(kinds):
            if isinstance(kind, Partial):
                local = summand(local, mesh.get_local_rank(axis), mesh.size(axis))
        return DTensor.from_local(local, mesh, kinds, run_check=False, shape=placed.shape, stride=placed.stride())

    def placements(self, tensor: torch.Tensor) -> Placements | None:
        return tuple(_text(kind) for kind in tensor.placements) if isinstance(tensor, DTensor) else None

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return whole.wait() if hasattr(whole, "wait") else whole


def _placement(text: str) -> Placement:
    return Replicate() if text == "R" else Partial() if text == "P" else Shard(int(text[1:]))


def _text(kind: Placement) -> str:
    if isinstance(kind, Shard):
        return f"S{kind.dim}"
    return "R" if kind.is_replicate() else "P" if kind.is_partial() else type(kind).__name__


def make() -> TorchPeer:
    return TorchPeer()
