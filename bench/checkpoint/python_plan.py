"""torch's planning of a save as the coordinator of many ranks that there are not: its own local plan, the global plan with its
checks, and the metadata's bytes. The plans of the other ranks are made beforehand, and not timed; nor is sending them.

    python_plan.py RANKS TENSORS
"""

import dataclasses
import json
import pickle
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.tensor import Shard, ones
from torch.testing._internal.distributed.fake_pg import FakeStore


def plan_of(rank, plan):
    """What another rank would have made: a row of each tensor."""
    items = []
    for item in plan.items:
        offsets = torch.Size([rank, 0])
        chunk = dataclasses.replace(item.tensor_data.chunk, offsets=offsets)
        data = dataclasses.replace(item.tensor_data, chunk=chunk)
        items.append(dataclasses.replace(item, index=dataclasses.replace(item.index, offset=offsets), tensor_data=data))
    return dataclasses.replace(plan, items=items)


def main():
    ranks, tensors = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = dist.init_device_mesh("cpu", (ranks,))
    state = {f"layers.{i}.weight": ones(ranks, 16, device_mesh=mesh, placements=[Shard(0)]) for i in range(tensors)}

    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=True)
    begin, before = time.perf_counter(), time.process_time()
    own = planner.create_local_plan()
    seconds, used = time.perf_counter() - begin, time.process_time() - before
    plans = [own, *(plan_of(rank, own) for rank in range(1, ranks))]

    begin, before = time.perf_counter(), time.process_time()
    plans, metadata = planner.create_global_plan(plans)
    # As FileSystemWriter.finish() does.
    metadata.storage_data = {
        item.index: _StorageInfo(f"__{rank}_0.distcp", 4096 * i, 1500)
        for rank, plan in enumerate(plans)
        for i, item in enumerate(plan.items)
    }
    size = len(pickle.dumps(metadata))
    seconds += time.perf_counter() - begin
    used += time.process_time() - before
    row = {"case": "plan", "ranks": ranks, "tensors": tensors, "seconds": seconds, "cpu_seconds": used, "metadata_bytes": size}
    print(json.dumps([row]))


if __name__ == "__main__":
    main()
