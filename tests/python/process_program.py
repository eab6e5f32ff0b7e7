"""What each of four processes runs; test_processes.py starts them. The first argument says what."""

from __future__ import annotations

import atexit
import pathlib
import re
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import sherd
from sherd import Replicate, Shard

WHOLE = torch.arange(20.0).reshape(5, 4)


def mesh_of_four() -> sherd.DeviceMesh:
    return sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def torchrun_alone() -> None:
    """No torch.distributed: sherd reads the launcher's variables."""
    x = sherd.distribute_tensor(WHOLE, mesh_of_four(), [Shard(0), Shard(1)])
    assert x.sum().item() == 190
    assert not dist.is_initialized()


def draws_by_place() -> None:
    """Processes draw what a plain tensor draws that is given a generator in the same state."""
    mesh = mesh_of_four()
    sherd.manual_seed(7)
    generator = sherd.Generator(7)
    for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(0)], [Replicate(), Replicate()]):
        x = sherd.randn(5, 7, device_mesh=mesh, placements=placements)
        assert sherd.full_tensor(x).equal(torch.randn(5, 7, generator=generator)), placements
    order = sherd.full_tensor(sherd.randperm(3000, device_mesh=mesh, placements=[Shard(0), Shard(0)]))
    assert order.equal(torch.randperm(3000, generator=generator))


def reuses_process_groups() -> None:
    dist.init_process_group("gloo")
    world = sherd.init()
    assert (world.rank, world.size) == (dist.get_rank(), dist.get_world_size())
    mesh = sherd.init_device_mesh("cpu", (4,))
    x = sherd.distribute_tensor(WHOLE, mesh, [Shard(0)])
    assert x.sum().item() == 190
    # The two take turns on one backend: a call of the one after a call of the other finds it in order.
    total = torch.tensor([1.0])
    for _ in range(5):
        dist.all_reduce(total)
        assert sherd.full_tensor(x).equal(WHOLE)
    assert total.item() == 4**5


def shared_memory() -> None:
    """A process group of torch.distributed over sherd's transport, by name."""
    dist.init_process_group("shm")
    rank = dist.get_rank()
    assert dist.get_backend() == "shm"
    total = torch.full((100_000,), rank + 1.0, dtype=torch.bfloat16)
    dist.all_reduce(total)
    assert total.eq(10).all()
    gathered: list[object] = [None] * 4
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": i} for i in range(4)]
    # All send before anybody receives, more than any buffer holds.
    given, taken = torch.full((3_000_000,), rank), torch.empty(3_000_000, dtype=torch.int64)
    calls = [dist.P2POp(dist.isend, given, (rank + 1) % 4), dist.P2POp(dist.irecv, taken, (rank + 3) % 4)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert taken.eq((rank + 3) % 4).all()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    value = torch.tensor([rank])
    dist.all_reduce(value, group=pairs[rank // 2])
    assert value.item() == (1 if rank < 2 else 5)
    x = sherd.distribute_tensor(WHOLE, sherd.init_device_mesh("cpu", (4,)), [Shard(0)])
    assert x.sum().item() == 190
    from torch.distributed.tensor import Replicate as TheirReplicate
    from torch.distributed.tensor import Shard as TheirShard
    from torch.distributed.tensor import distribute_tensor

    theirs = distribute_tensor(WHOLE, dist.init_device_mesh("cpu", (4,)), [TheirShard(0)])
    assert (theirs * 2).full_tensor().equal(WHOLE * 2)
    assert theirs.sum().redistribute(placements=[TheirReplicate()]).to_local().item() == 190
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4) * rank).sum().backward()
    assert model.module.weight.grad.eq(4.5).all(), model.module.weight.grad


def shared_memory_and_a_rank_that_dies() -> None:
    import os
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the others as soon as one has: they speak first
    dist.init_process_group("shm")
    dist.barrier()
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        assert "all_reduce: rank 2 is gone\n  group: ranks 0-3\n" in str(error), error
        print("told", flush=True)


def converts() -> None:
    from torch.distributed.tensor import DTensor, distribute_tensor
    from torch.distributed.tensor import Replicate as TheirReplicate
    from torch.distributed.tensor import Shard as TheirShard

    dist.init_process_group("gloo")
    mesh = mesh_of_four()
    their_mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    theirs = distribute_tensor(WHOLE, their_mesh, [TheirShard(0), TheirShard(1)])

    ours = sherd.from_torch(theirs)
    assert type(ours) is torch.Tensor
    assert sherd.placements(ours) == (Shard(0), Shard(1))
    assert sherd.to_local(ours).data_ptr() == theirs.to_local().data_ptr()
    assert sherd.full_tensor(ours * 2).equal(WHOLE * 2)
    back = sherd.to_torch(ours)
    assert isinstance(back, DTensor) and back.device_mesh is their_mesh
    assert back.to_local().data_ptr() == theirs.to_local().data_ptr()
    assert sherd.to_torch(sherd.distribute_tensor(WHOLE, mesh, [Shard(1), Replicate()])).full_tensor().equal(WHOLE)

    # Gradients go through, both ways, and a leaf stays one.
    leaf = distribute_tensor(torch.ones(5, 4), their_mesh, [TheirShard(0), TheirReplicate()]).requires_grad_()
    (sherd.from_torch(leaf * 3) ** 2).sum().backward()
    assert leaf.grad is not None and leaf.grad.full_tensor().equal(torch.full((5, 4), 18.0))
    leaf = sherd.distribute_tensor(torch.ones(5, 4), mesh, [Shard(0), Replicate()]).requires_grad_()
    (sherd.to_torch(leaf * 3) ** 2).sum().backward()
    assert sherd.full_tensor(leaf.grad).equal(torch.full((5, 4), 18.0))
    assert sherd.from_torch(theirs.clone().detach().requires_grad_()).is_leaf


def mixing_is_refused() -> None:
    from torch.distributed.tensor import Shard as TheirShard
    from torch.distributed.tensor import distribute_tensor

    dist.init_process_group("gloo")
    ours = sherd.distribute_tensor(WHOLE, sherd.init_device_mesh("cpu", (4,)), [Shard(0)])
    theirs = distribute_tensor(WHOLE, dist.init_device_mesh("cpu", (4,)), [TheirShard(0)])
    # torch says so by itself, or asks the place that sherd guards, as its version has it.
    mixed = "got mixed torch.Tensor and DTensor|help: sherd.from_torch.theirs., or sherd.to_torch.ours."
    calls: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (RuntimeError, mixed, lambda: ours + theirs),
        (RuntimeError, mixed, lambda: torch.cat([theirs, ours])),
        (RuntimeError, "help: sherd.from_torch.theirs., or sherd.to_torch.ours.", lambda: theirs + ours.sum()),
        (TypeError, "help: sherd.from_torch.tensor.", lambda: sherd.full_tensor(theirs)),
        (TypeError, "help: sherd.from_torch.mesh.", lambda: sherd.zeros(2, device_mesh=theirs.device_mesh)),
    ]
    for kind, text, call in calls:
        try:
            call()
        except kind as error:
            assert re.search(text, str(error)), error
        else:
            raise AssertionError(f"no error where one should say {text!r}")


def fetches() -> None:
    world = sherd.init()
    sherd.init_rpc()
    shared = sherd.share_tensors([WHOLE + world.rank])
    for owner, theirs in enumerate(shared):
        assert theirs[0].owner == owner
        assert theirs[0].to_here().equal(WHOLE + owner)
    sherd.shutdown_rpc()


def fetches_and_never_shuts_down() -> None:
    sherd.init_rpc()
    shared = sherd.share_tensors([WHOLE])
    assert shared[3][0].to_here().equal(WHOLE)
    sherd.barrier(sherd.init().group())
    globals()["kept"] = shared  # until the interpreter ends


def one_rank_fails() -> None:
    x = sherd.distribute_tensor(WHOLE, mesh_of_four(), [Shard(0), Shard(1)])
    if sherd.init().rank == 2:
        atexit.register(time.sleep, 5)  # the launcher ends the others as soon as this one has ended: they speak first
        raise LookupError("rank two is lost")
    try:
        x.sum().item()
    except dist.DistBackendError as error:
        assert "rank 2 failed" in str(error) and "LookupError: rank two is lost" in str(error), error
        print("told")


def nobody_waits_for_a_move() -> None:
    """Ranks that mean different columns: an error that is found when the program has come to its end."""
    mesh = sherd.init_device_mesh("cpu", (4,))
    x = sherd.distribute_tensor(torch.ones(4, 4, 4), mesh, [Shard(0)])
    sherd.redistribute_async(x, [Shard(1 if sherd.init().rank == 0 else 2)])


def no_thread_outlives_python() -> None:
    """A thread of a backend that lets go of a Python tensor after the interpreter has ended would abort the process."""

    def threads_of_gloo() -> list[str]:
        names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
        return [name for name in names if name.startswith("pt_gloo")]

    def tell() -> None:
        print(f"threads left: {threads_of_gloo()}")  # one string: ranks share the pipe

    atexit.register(tell)  # before sherd's: called after it
    dist.init_process_group("gloo")
    x = sherd.distribute_tensor(WHOLE, mesh_of_four(), [Shard(0), Shard(1)])
    assert x.sum().item() == 190
    assert threads_of_gloo()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("fine")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
