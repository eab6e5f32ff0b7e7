"""The time of a call that all ranks of torch.distributed make: what time_of.h is for sherd."""

import time

import torch
import torch.distributed as dist


def time_of(call, seconds):
    def run(calls):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        dist.barrier()
        return (time.perf_counter() - begin) / calls

    run(1)
    calls = torch.tensor([int(min(max(seconds / 3 / run(1), 1), 10000))])
    dist.broadcast(calls, 0)
    return min(run(int(calls)) for _ in range(3))
