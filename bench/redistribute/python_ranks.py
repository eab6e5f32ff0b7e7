"""One rank of torch's DTensor over Gloo; started by run.py under `sherd run`. Rank 0 prints the rows of
redistribute_bench.cpp, seconds being null where torch cannot do it."""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, zeros
from torch.distributed.tensor.placement_types import _StridedShard

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from torch_time import time_of  # noqa: E402  (stands beside the folders of the benchmarks)


def main():
    sizes = [int(size) for size in sys.argv[1].split(",")]
    seconds = float(sys.argv[2])
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    line = dist.init_device_mesh("cpu", (n,))
    rows = []

    def add(name, size, call):
        try:
            measured = time_of(call, seconds)
        except (NotImplementedError, RuntimeError, ValueError, AssertionError):  # alike on every rank
            measured = None
        rows.append({"case": name, "bytes": size, "ranks": n, "seconds": measured})

    def measure(name, mesh, shape, before, after, size):
        if any(isinstance(placement, _StridedShard) for placement in before):
            tensor = distribute_tensor(torch.zeros(shape), mesh, before, src_data_rank=None)
        else:
            tensor = zeros(*shape, device_mesh=mesh, placements=before)
        add(name, size, lambda: tensor.redistribute(mesh, after))

    for size in sizes:
        side = 1
        while 4 * side * side < size:
            side *= 2
        count = size // 4 // side
        measure("S(0) to S(1)", line, (count, side), [Shard(0)], [Shard(1)], size)
        measure("S(0) to S(1), uneven", line, (count - 1, side - 3), [Shard(0)], [Shard(1)], size)
        measure("S(0) to R", line, (count, side), [Shard(0)], [Replicate()], size)
        measure("S(1) to R", line, (count, side), [Shard(1)], [Replicate()], size)
        measure("strided to S(1)", line, (count, side), [_StridedShard(0, split_factor=2)], [Shard(1)], size)
        if n >= 4:
            grid = dist.init_device_mesh("cpu", (2, n // 2))
            measure("(S(0), S(1)) to (S(1), S(0))", grid, (count, side), [Shard(0), Shard(1)], [Shard(1), Shard(0)], size)
            measure("(S(0), S(0)) to (R, S(1))", grid, (count, side), [Shard(0), Shard(0)], [Replicate(), Shard(1)], size)
    many = [zeros(32, 32, device_mesh=line, placements=[Shard(0)]) for _ in range(1000)]
    add("1000 of 4 KiB, S(0) to S(1)", 1000 * 4096, lambda: [tensor.redistribute(line, [Shard(1)]) for tensor in many])
    if dist.get_rank() == 0:
        print(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
