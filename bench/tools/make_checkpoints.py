"""The checkpoints of `./dev bench tools`, as four ranks of torch.distributed.checkpoint write them.

usage: make_checkpoints.py FOLDER TENSORS ROWS SMALL    FOLDER/large: so many tensors of ROWS x 512; FOLDER/small: of 4 x 64
"""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

RANKS = 4


def rank_main(rank, folder, tensors, rows, small):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for name, count, size in (("large", tensors, (rows, 512)), ("small", small, (4, 64))):
        state = {"step": 4000}
        for i in range(count):
            local = torch.full((size[0] // RANKS, size[1]), float(i + rank))
            state[f"layers.{i // 8}.w{i % 8}"] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        dcp.save({"model": state}, checkpoint_id=f"{folder}/{name}")
        del state
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, (sys.argv[1], *map(int, sys.argv[2:5])), RANKS)
