"""One rank of torch.distributed over Gloo; started by run.py under `sherd run`. Rank 0 prints the rows of transport_bench.cpp."""

import json
import sys
import time
import warnings

import torch
import torch.distributed as dist


def time_of(call, seconds):
    def run(calls):
        dist.barrier()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        cpu = time.process_time() - cpu_begin
        dist.barrier()
        return (time.perf_counter() - begin) / calls, cpu / calls

    run(2)
    calls = torch.tensor([int(min(max(seconds / 3 / run(2)[0], 2), 10000))])
    dist.broadcast(calls, 0)
    walls, cpus = zip(*(run(int(calls)) for _ in range(3)))
    return {"seconds": min(walls), "cpu_seconds": min(cpus)}


def main():
    sizes = [int(size) for size in sys.argv[1].split(",")]
    seconds = float(sys.argv[2])
    warnings.simplefilter("ignore")  # names that torch is about to change
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    rows = []
    for size in sizes:
        whole, other, part = torch.zeros(size // 4), torch.zeros(size // 4), torch.zeros(size // 4 // n)
        cases = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_to_all": lambda: dist.all_to_all_single(other, whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
        }
        for name, call in cases.items():
            rows.append({"collective": name, "bytes": size, "ranks": n, **time_of(call, seconds)})
    if dist.get_rank() == 0:
        print(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
