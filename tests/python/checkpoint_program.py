"""One rank of a program that saves with torch.distributed.checkpoint: rank, ranks, rendezvous file, path, use_collectives."""

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from test_checkpoint import emptied, numbers, own_values, same

warnings.simplefilter("ignore")
rank, ranks, store, path, collectives = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5] == "1"
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))
state = {
    "a": distribute_tensor(numbers((10, 6)), mesh, [Shard(0)]),
    "b": distribute_tensor(numbers((5, 4), torch.float64), mesh, [Shard(1)]),
    "plain": numbers((4,)),
    "step": 7,
}
if not collectives:
    state.update(own_values(rank))
dcp.save(state, checkpoint_id=path, use_collectives=collectives)
dist.barrier()
if not collectives:  # torch gives each rank its own
    loaded = emptied(own_values(rank))
    dcp.load(loaded, checkpoint_id=path)
    assert same(loaded, own_values(rank)), loaded
dist.barrier()
dist.destroy_process_group()
# Nothing of sherd was called here. Once such a process ended with "terminate called" on its way out; whose thread it was is not known.
os._exit(0)
