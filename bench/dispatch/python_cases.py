"""The cases of dispatch_bench.cpp from Python, on torch.distributed.tensor or on sherd.

    python_cases.py torch|sherd [--device cuda] [--runs 5] [--iterations 20000]

Prints a JSON list of {"case", "local_ns", "distributed_ns"}, the best run of each.
"""

import argparse
import json
import sys
import time

import torch

WORLD = 8
WARM_UP = 200


def time_of(function, iterations, synchronize):
    """Nanoseconds per call."""
    synchronize()
    start = time.perf_counter_ns()
    for _ in range(iterations):
        function()
    synchronize()
    return (time.perf_counter_ns() - start) / iterations


def operators(x, y, w, gain, shift, rows):
    """The cases on one set of tensors; `rows` is the number of rows that x has."""
    # An in-place sum of its own: a tensor that grows for a hundred thousand calls is no operand for the others.
    total = x.clone()
    return {
        "add": lambda: x + y,
        "add_": lambda: total.add_(y),
        "mul": lambda: x * y,
        "mm": lambda: torch.mm(x, w),
        "relu": lambda: torch.relu(x),
        "layer_norm": lambda: torch.nn.functional.layer_norm(x, (8,), gain, shift),
        "view": lambda: x.view(rows, 2, 4),
        "transpose": lambda: x.transpose(0, 1),
        "sum": lambda: x.sum(1),
        "softmax": lambda: torch.softmax(x, 1),
        "cat": lambda: torch.cat((x, y), 1),
    }


class Mlp(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)  # the same weights each time: how long a step takes depends on them
        self.up = torch.nn.Linear(16, 16, bias=False, device=device)
        self.down = torch.nn.Linear(16, 16, bias=False, device=device)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def training_step(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step():
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def torch_maker(device):
    """A function that makes a DTensor of a local part, of torch.distributed.tensor, in a pretended world."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    mesh = dist.init_device_mesh(device, (WORLD,))

    def distributed(local, dim=None):
        placement = Replicate() if dim is None else Shard(dim)
        return DTensor.from_local(local.clone(), mesh, [placement], run_check=False)

    return distributed


def sherd_maker(device):
    """The same of sherd."""
    import sherd

    world = sherd.fake_world(0, WORLD)
    world.__enter__()
    mesh = sherd.init_device_mesh(device, (WORLD,))

    def distributed(local, dim=None, scope=world):
        return sherd.from_local(local.clone(), mesh, [sherd.Replicate() if dim is None else sherd.Shard(dim)])

    return distributed


def cases(device, distributed):
    """Pairs of functions: local and distributed."""
    x, y = (torch.rand(8, 8, device=device) for _ in range(2))
    weights = [torch.rand(8, 8, device=device), torch.rand(8, device=device), torch.rand(8, device=device)]

    local = operators(x, y, *weights, rows=8)
    sharded = operators(
        distributed(x, 0), distributed(y, 0), *(distributed(w) for w in weights), rows=8 * WORLD
    )
    pairs = {name: (local[name], sharded[name]) for name in local}

    batch = torch.rand(8, 16, device=device)
    plain, parallel = Mlp(device), Mlp(device)
    for module in (parallel.up, parallel.down):
        module.weight = torch.nn.Parameter(distributed(module.weight.detach()))
    pairs["step"] = (training_step(plain, batch), training_step(parallel, distributed(batch)))
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["torch", "sherd"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20000)
    options = parser.parse_args()

    torch.set_num_threads(1)
    distributed = torch_maker(options.device) if options.library == "torch" else sherd_maker(options.device)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    results = []
    for name, pair in cases(options.device, distributed).items():
        with torch.set_grad_enabled(name == "step"):
            best = []
            for function in pair:
                time_of(function, WARM_UP, synchronize)
                best.append(min(time_of(function, options.iterations, synchronize) for _ in range(options.runs)))
        print(f"{options.library} {name}: {best[0]:.0f} -> {best[1]:.0f} ns", file=sys.stderr)
        results.append({"case": name, "local_ns": best[0], "distributed_ns": best[1]})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
