"""One rank of torch.distributed.checkpoint over Gloo; started by run.py under `sherd run`, with the settings and the cases of
checkpoint_bench.cpp. Rank 0 prints its rows."""

import argparse
import json
import logging
import os
import pathlib
import shutil
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, ones

SMALL_SIDE = 32


def memory(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


class Bench:
    def __init__(self, options):
        self.options = options
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self.mesh = dist.init_device_mesh("cpu", (self.n,))
        self.rows = []

    def run(self):
        large = (self.options.tensors, self.options.side)
        small = (self.options.small, SMALL_SIDE)
        known = {
            "save": lambda: self.save("save", "large", *large),
            "load": lambda: self.load("load", "large", *large, 0),
            "reshard": lambda: self.load("reshard", "large", *large, 1),
            "save_small": lambda: self.save("save_small", "small", *small),
            "load_small": lambda: self.load("load_small", "small", *small, 0),
            "async": self.save_async,
        }
        for name in self.options.cases:
            known[name]()
        return self.rows

    def elements(self, number, side, dim):
        """This rank's part of tensor `number`, whose element [row, column] is row * side + column + number."""
        part = [range(side), range(side)]
        part[dim] = range(self.rank * side // self.n, (self.rank + 1) * side // self.n)
        rows, columns = (torch.arange(r.start, r.stop, dtype=torch.float32) for r in part)
        return rows.unsqueeze(1) * side + columns + number

    def state(self, tensors, side, dim, filled):
        state = {}
        for i in range(tensors):
            tensor = ones(side, side, device_mesh=self.mesh, placements=[Shard(dim)])
            if filled:
                tensor.to_local().copy_(self.elements(i, side, dim))
            state[f"layers.{i}.weight"] = tensor
        return state

    def time(self, name, call):
        dist.barrier()
        begin, before = time.perf_counter(), time.process_time()
        call()
        used = time.process_time() - before
        dist.barrier()
        self.add(name, time.perf_counter() - begin, used)

    def add(self, name, seconds, used):
        used = self.of_all(used, dist.ReduceOp.SUM)
        self.rows.append({"case": name, "ranks": self.n, "seconds": seconds, "cpu_seconds": used})

    def of_all(self, value, op):
        all_ranks = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(all_ranks, op)
        return float(all_ranks)

    def path(self, name):
        return pathlib.Path(self.options.folder) / name

    def remove(self, name):
        if self.rank == 0:
            shutil.rmtree(self.path(name), ignore_errors=True)
        dist.barrier()

    def save(self, name, folder, tensors, side):
        state = self.state(tensors, side, 0, True)
        self.remove(folder)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        self.time(name, lambda: dcp.save(state, checkpoint_id=self.path(folder)))
        extra = self.of_all((memory("VmHWM") - before) / (1 << 20), dist.ReduceOp.MAX)
        if name == "save":
            self.rows.append({"case": "save_peak_extra_mib", "ranks": self.n, "mib": extra})

    def load(self, name, folder, tensors, side, dim):
        state = self.state(tensors, side, dim, False)
        if self.rank == 0 and self.options.cold:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        dist.barrier()
        self.time(name, lambda: dcp.load(state, checkpoint_id=self.path(folder)))
        for i in (0, tensors - 1):
            if not torch.equal(state[f"layers.{i}.weight"].to_local(), self.elements(i, side, dim)):
                raise RuntimeError(f"what was loaded is not what was saved: tensor {i}")

    def save_async(self):
        state = self.state(self.options.tensors, self.options.side, 0, True)
        # torch saves in the background over the group that it is given, which nobody else may use meanwhile.
        group = dist.new_group(backend="gloo")
        for name in ("async first", "async"):
            self.remove("async")
            begin, before = time.perf_counter(), time.process_time()
            future = dcp.async_save(state, checkpoint_id=self.path("async"), process_group=group)
            seconds, used = time.perf_counter() - begin, time.process_time() - before
            self.add(name, self.of_all(seconds, dist.ReduceOp.MAX), used)
            self.time(f"{name}, to the end", future.result)
        self.remove("async")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    parser.add_argument("--tensors", type=int)
    parser.add_argument("--side", type=int)
    parser.add_argument("--small", type=int)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo")
    rows = Bench(options).run()
    if dist.get_rank() == 0:
        print(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
