"""PyTorch's own answers about local shapes and rows, for tests/unit/layout/torch_test.cpp.

Regenerate with a Python that has torch 2.13:

    python tests/python/layout_oracle.py > tests/golden/layout_torch.txt

The cases are random with a fixed seed. Nothing is left out: where PyTorch 2.13 computes one thing in two ways (the
arithmetic of `_compute_local_shape_and_global_offset`, and `_split_tensor` on a tensor of row numbers), this script
checks that they agree, uneven and empty _StridedShards included, and fails where they do not.

Output, per case: "mesh shape placements", then for coordinates of the mesh "coordinate local_shape offset rows...",
where rows are, for each dim, the runs begin:end that the rank holds ("-" for none).
"""

import itertools
import random
import sys

import torch
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

CASES = 400
COORDINATES = 10  # per case, at most


def random_case(rng):
    mesh = [rng.randint(1, 7) for _ in range(rng.randint(1, 4))]
    shape = [rng.choice([0, 1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 64, 100]) for _ in range(rng.randint(1, 4))]
    favourite = rng.randrange(len(shape)) if rng.random() < 0.6 else None
    placements = []
    for _ in mesh:
        dim = rng.randrange(len(shape)) if favourite is None else favourite
        kind = rng.random()
        if kind < 0.15:
            placements.append(Replicate())
        elif kind < 0.55:
            placements.append(Shard(dim))
        else:
            placements.append(_StridedShard(dim, split_factor=rng.randint(1, 6)))
    return mesh, shape, placements


def rows_by_splitting(mesh, shape, placements, coordinate):
    """The rows of every dim that the rank holds, by cutting a tensor of row numbers with _split_tensor."""
    rows = []
    for dim, size in enumerate(shape):
        numbers = torch.arange(size)
        for axis, placement in enumerate(placements):
            if isinstance(placement, Replicate) or placement.dim != dim:
                continue
            cut = Shard(0) if isinstance(placement, Shard) else _StridedShard(0, split_factor=placement.split_factor)
            numbers = cut._split_tensor(numbers, mesh[axis], with_padding=False)[0][coordinate[axis]]
        rows.append(numbers.tolist())
    return rows


def runs_text(rows):
    runs = []
    for row in rows:
        if runs and runs[-1][1] == row:
            runs[-1][1] += 1
        else:
            runs.append([row, row + 1])
    return ",".join(f"{begin}:{end}" for begin, end in runs) or "-"


def placement_text(placement):
    if isinstance(placement, Replicate):
        return "R"
    if isinstance(placement, Shard):
        return f"S({placement.dim})"
    return f"S({placement.dim}, split={placement.split_factor})"


def main():
    rng = random.Random(20130)
    print(f"# Written by tests/python/layout_oracle.py with torch {torch.__version__.split('+')[0]}")
    for _ in range(CASES):
        mesh, shape, placements = random_case(rng)
        print(mesh, shape, "(" + ", ".join(map(placement_text, placements)) + ")")
        coordinates = list(itertools.product(*map(range, mesh)))
        if len(coordinates) > COORDINATES:
            coordinates = sorted(rng.sample(coordinates, COORDINATES))
        for coordinate in coordinates:
            local, offset = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), placements)
            rows = rows_by_splitting(mesh, shape, placements, coordinate)
            if list(local) != [len(r) for r in rows]:
                sys.exit(f"PyTorch disagrees with itself: {local} but {rows}")
            if list(offset) != [r[0] if r else size for r, size in zip(rows, shape)]:
                sys.exit(f"PyTorch disagrees with itself: offset {offset} but {rows}")
            print(" ", list(coordinate), list(local), list(offset), *map(runs_text, rows))


if __name__ == "__main__":
    main()
