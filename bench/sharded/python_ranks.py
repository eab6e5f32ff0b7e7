"""One rank of torch's ShardedTensor over Gloo; started by run.py under `sherd run`. Rank 0 prints the rows of
sharded_bench.cpp. With "metadata" as the first argument: one process, which measures what a rank of 4,096 remembers."""

import json
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")  # torch's own, about its ShardedTensor: one for each call
from torch.distributed._shard import sharded_tensor  # noqa: E402
from torch.distributed._shard.sharding_spec import ChunkShardingSpec  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from torch_time import time_of  # noqa: E402  (stands beside the folders of the benchmarks)


def chunks(dim, ranks, device):
    return ChunkShardingSpec(dim, [f"rank:{rank}/{device}" for rank in range(ranks)])


def measure(sizes, tensors, seconds):
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    rows = []

    def add(name, size, call):
        rows.append({"case": name, "bytes": size, "ranks": n, "seconds": time_of(call, seconds)})

    for size in sizes:
        side = 1
        while 4 * side * side < size:
            side *= 2
        shape = (size // 4 // side, side)
        x = sharded_tensor.zeros(chunks(0, n, "cpu"), *shape)
        out = torch.empty(shape) if rank == 0 else None
        add("gather", size, lambda x=x, out=out: x.gather(0, out, dtype=torch.float32))
        # In place, there and back: every other call finds the columns. Both ways move as much.
        ways = [chunks(1, n, "cpu"), chunks(0, n, "cpu")]

        def reshard(x=x, ways=ways):
            x.reshard(ways[0])
            ways.reverse()

        add("reshard, rows to columns", size, reshard)
    part = torch.zeros(8, 32)

    def build():
        for _ in range(tensors):
            shard = sharded_tensor.Shard.from_tensor_and_offsets(part, [8 * rank, 0], rank)
            sharded_tensor.init_from_local_shards([shard], 8 * n, 32)

    add(f"{tensors} from local shards", 0, build)
    if rank == 0:
        print(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def remember(tensors):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def resident_bytes():
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    ranks = 4096
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    kept = [sharded_tensor.empty(chunks(0, ranks, "meta"), ranks * 8, 1)]
    before = resident_bytes()
    kept += [sharded_tensor.empty(chunks(0, ranks, "meta"), ranks * 8, i + 1) for i in range(tensors)]
    grown = resident_bytes() - before
    print(json.dumps([{"case": "metadata", "ranks": ranks, "tensors": tensors, "resident_bytes": grown}]))


if __name__ == "__main__":
    if sys.argv[1] == "metadata":
        remember(int(sys.argv[2]))
    else:
        measure([int(size) for size in sys.argv[1].split(",")], int(sys.argv[2]), float(sys.argv[3]))
