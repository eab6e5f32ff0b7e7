"""One rank of the GPT of examples/train_gpt in Python's torch, over Gloo; started by run.py under `sherd run`. Rank 0 prints the row of
train_bench.cpp. The same model, the same weights, the same batches: both sides have the same loss at every step.

    python_ranks.py --dp 2 --tp 2 [--fsdp] [--layers 4] [--width 128] [--length 64] [--batch 8] [--steps 50] [--warmup 10] [--device cpu]

Tensor parallel: parallelize_module. Data parallel: DistributedDataParallel. Fully sharded: fully_shard (FSDP2) of every block and of the
whole. --plain: no parallelism at all, one rank.
"""

import argparse
import json
import pathlib
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.utils._python_dispatch import TorchDispatchMode

warnings.simplefilter("ignore")  # fully_shard's, about the view that the model returns
SEED = 20
TEXT = pathlib.Path(__file__).parents[2] / "examples" / "train_gpt" / "text.txt"
MASK = (1 << 64) - 1


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head_width = width // heads
        for name in ("query", "key", "value", "out"):
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x):
        def by_head(y):
            return y.view(y.size(0), y.size(1), -1, self.head_width).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x)), is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        # Drawn last, as in gpt.h: the same seed then gives the same weights.
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        with torch.no_grad():
            self.tokens.weight.mul_(0.02)
            self.positions.weight.mul_(0.02)

    def forward(self, characters):
        x = self.tokens(characters) + self.positions(torch.arange(characters.size(1), device=characters.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Corpus:
    """As corpus.cpp draws."""

    def __init__(self):
        text = TEXT.read_bytes()
        letters = sorted(set(text), key=lambda letter: letter - 256 if letter > 127 else letter)
        numbers = {letter: number for number, letter in enumerate(letters)}
        self.vocabulary = len(letters)
        self.characters = torch.tensor([numbers[letter] for letter in text])

    @staticmethod
    def draws(state):
        while True:
            state = (state + 0x9E3779B97F4A7C15) & MASK
            z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
            yield z ^ z >> 31

    def batch(self, step, rows, length):
        places = len(self.characters) - length
        draws = self.draws((next(self.draws(SEED)) + step) & MASK)
        starts = [next(draws) % places for _ in range(rows)]
        return tuple(torch.stack([self.characters[at + by : at + by + length] for at in starts]) for by in (0, 1))


class ReceivedBytes(TorchDispatchMode):
    """What collectives bring to this rank from others, in the terms of sherd::CommRecorder: an all_reduce as a ring does it."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it calls comes by again
        self.bytes += self.received(func.namespace, func._overloadpacket.__name__, args)
        return func(*args, **(kwargs or {}))

    def received(self, namespace, name, args):
        if namespace == "c10d":
            if name == "allreduce_":
                ranks = dist.ProcessGroup.unbox(args[1]).size()
                return sum(2 * nbytes(each) * (ranks - 1) // ranks for each in args[0])
            if name == "_allgather_base_":
                return nbytes(args[0]) - nbytes(args[1])
            if name == "_reduce_scatter_base_":
                return nbytes(args[1]) - nbytes(args[0])
            if name in ("broadcast_", "barrier"):
                return 0
            raise NotImplementedError(f"c10d.{name}: say what it receives")
        if namespace == "_c10d_functional" and "wait_tensor" not in name and "wrap_tensor" not in name:
            ranks = dist.get_world_size(dist.distributed_c10d._resolve_process_group(args[-1]))
            factors = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather_into_tensor": ranks - 1, "reduce_scatter_tensor": (ranks - 1) / ranks}
            return int(nbytes(args[0]) * factors[name])
        return 0


def nbytes(tensor):
    return tensor.numel() * tensor.element_size()


def peak_mib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def parallel(model, options):
    """The model on its mesh, and the rows of a batch that are this rank's."""
    if options.plain:
        return model, slice(None)
    mesh = init_device_mesh(options.device, (options.dp, options.tp), mesh_dim_names=("dp", "tp"))
    if options.tp > 1:
        columns, rows = ColwiseParallel(), RowwiseParallel()
        plan = {f"blocks.*.attention.{name}": columns for name in ("query", "key", "value")}
        plan |= {"blocks.*.attention.out": rows, "blocks.*.up": columns, "blocks.*.down": rows}
        parallelize_module(model, mesh["tp"], plan)
    if options.fsdp:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    elif options.dp > 1:
        _pre_dp_module_transform(model)
        model = nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    rows = options.batch // options.dp
    first = mesh.get_local_rank("dp") * rows
    return model, slice(first, first + rows)


def options_of():
    parser = argparse.ArgumentParser()
    for name, value in (("dp", 1), ("tp", 1), ("layers", 4), ("width", 128), ("heads", 4), ("length", 64), ("batch", 8), ("steps", 50), ("warmup", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def main():
    options = options_of()
    if not options.plain:
        dist.init_process_group("gloo" if options.device == "cpu" else "nccl")
    corpus = Corpus()
    torch.manual_seed(SEED)
    model = Gpt(corpus.vocabulary, options.layers, options.width, options.heads, options.length).to(options.device)
    model, mine = parallel(model, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

    def step(number):
        inputs, targets = (each[mine].to(options.device) for each in corpus.batch(number, options.batch, options.length))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    for number in range(options.warmup):
        step(number)
    if options.device == "cuda":
        torch.cuda.synchronize()
    if not options.plain:
        dist.barrier()
    start = time.perf_counter()
    loss = step(options.warmup)
    for number in range(options.warmup + 1, options.warmup + options.steps):
        step(number)
    if options.device == "cuda":
        torch.cuda.synchronize()
    if not options.plain:
        dist.barrier()
    seconds = time.perf_counter() - start
    peak = torch.tensor([peak_mib()])  # before the step that is looked at
    with ReceivedBytes() as received:
        step(options.warmup + options.steps)
    if not options.plain:
        dist.all_reduce(peak, dist.ReduceOp.MAX)
        # The ranks of an axis tp have the same loss, and the parts of the batch are equal: the mean is the batch's.
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    if options.plain or dist.get_rank() == 0:
        tokens = options.batch * options.length * options.steps / seconds
        print(json.dumps([{"tokens_per_second": tokens, "bytes": received.bytes, "peak_mib": peak.item(), "loss": loss.item()}]))
    if not options.plain:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
