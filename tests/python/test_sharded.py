"""ShardedTensors beside those of torch.distributed, in the same processes: worlds of one to four ranks over Gloo.

Random specs, sizes and dtypes go through both; what torch gives must be what sherd gives. Where torch is known to be
wrong, to raise or to hang, it is not asked (`torch_can_...` in beside_torch/same.py, and beside_torch/known.py): sherd
is compared with the whole tensor instead.
"""

from __future__ import annotations

import unittest
import warnings

warnings.simplefilter("ignore")  # torch's own, about its ShardedTensor: one for each call

from beside_torch.comparisons import (  # noqa: E402
    arithmetic,
    cut_by_one_rank,
    factories,
    metadata_of_specs,
    open_sizes,
    reshards,
    shards_and_gather,
)
from beside_torch.errors import errors  # noqa: E402
from beside_torch.known import KNOWN  # noqa: E402
from beside_torch.worlds import in_world, run_each  # noqa: E402

COMPARED = [metadata_of_specs, factories, shards_and_gather, open_sizes, cut_by_one_rank, reshards, errors]


class Differential(unittest.TestCase):
    """torch and sherd in the same processes, world by world."""

    def run_all(self, world: int) -> None:
        in_world(world, lambda rank, size: run_each(rank, size, [arithmetic, *COMPARED] if size == 1 else COMPARED))

    def test_one_rank(self) -> None:
        self.run_all(1)

    def test_two_ranks(self) -> None:
        self.run_all(2)

    def test_three_ranks(self) -> None:
        self.run_all(3)

    def test_four_ranks(self) -> None:
        self.run_all(4)


class Known(unittest.TestCase):
    """What torch is known to do wrong."""

    def test_sherd_is_right(self) -> None:
        for world in (1, 3, 4):
            in_world(world, lambda rank, size: run_each(rank, size, KNOWN))


if __name__ == "__main__":
    unittest.main()
