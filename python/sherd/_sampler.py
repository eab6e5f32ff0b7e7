"""Which samples a rank reads."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch

from . import _C
from ._arguments import mesh_or_current
from ._errors import error_text


class ShardedSampler(torch.utils.data.Sampler[list[int]]):
    """Deals batches of samples to the ranks of a data mesh, so that together they read the batches of one device.

    A batch sampler: `DataLoader(dataset, batch_sampler=ShardedSampler(dataset, mesh["dp"], batch_size=8))`, with 8
    samples for each rank. The order of an epoch follows from the seed and the epoch alone, and is that of C++'s
    ShardedSampler. All ranks get equally many: where the samples do not divide, some come twice, or are left out with
    `drop_last`. Each iteration is the next epoch; `state_dict()` says how far the ranks are, and serves any number of them.

    >>> import torch, sherd
    >>> def read(rank):
    ...     mesh = sherd.init_device_mesh("cpu", (2,))
    ...     return list(sherd.ShardedSampler(range(8), mesh, batch_size=2, shuffle=False))
    >>> sherd.spawn(2, read)
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """

    def __init__(
        self,
        data: Sized | int,
        device_mesh: _C.DeviceMesh | None = None,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        mesh = mesh_or_current("ShardedSampler", device_mesh)
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise ValueError(
                error_text("ShardedSampler", "this rank is not in the mesh", "a mesh that holds this rank", mesh=mesh)
            )
        size = data if isinstance(data, int) else len(data)
        place = 0
        for axis, at in enumerate(coordinate):
            place = place * mesh.size(axis) + at
        self.batch_size = batch_size
        self._samples = size // mesh.size() if drop_last else -(-size // mesh.size())
        self._deal = _C.ShardedSampler(size, mesh.size(), place, seed, shuffle, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        self._deal.reset()
        while (batch := self._deal.next(self.batch_size)) is not None:
            yield batch

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-self._samples // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration."""
        self._deal.set_state(epoch, 0)

    def state_dict(self) -> dict[str, int]:
        epoch, taken = self._deal.state()
        return {"epoch": epoch, "taken": taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._deal.set_state(state["epoch"], state["taken"])
