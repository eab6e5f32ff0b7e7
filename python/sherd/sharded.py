"""ShardedTensors: tensors that lie in rectangles on the ranks of a group, any rectangles, several or none per rank.

The names are those of `torch.distributed._shard`, and functions where that has methods, for a ShardedTensor is an
ordinary torch.Tensor: pointwise operators, reductions, autograd and optimizers work on it.

>>> import torch, sherd
>>> from sherd import sharded
>>> def total(rank):
...     spec = sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
...     x = sharded.shard_tensor(torch.arange(6.0).reshape(3, 2), spec)
...     whole = torch.empty(3, 2) if rank == 0 else None
...     sharded.gather(x * 2, out=whole)
...     return sharded.local_tensor(x).shape, whole
>>> sherd.spawn(2, total)
[(torch.Size([2, 2]), tensor([[ 0.,  2.],
        [ 4.,  6.],
        [ 8., 10.]])), (torch.Size([1, 2]), None)]

Calls that communicate are made by every rank of the group, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import torch

from . import _C
from ._arguments import Placement, check_dtensor, check_plain, checked_placements, mesh_or_current
from ._arguments import check_tensor as check_any_tensor
from ._arguments import checked_shape as checked_any_shape
from ._errors import error_text
from ._sharded_arguments import check_sharded, checked_shards, checked_spec, group_options, torch_group
from ._sharded_modules import (
    ShardedOptimizer,
    Sharder,
    ShardingPlan,
    ShardingPlanner,
    named_params_with_sharded_tensor,
    shard_module,
    shard_parameter,
)
from ._sharded_torch import from_torch, to_torch

if TYPE_CHECKING:
    from typing_extensions import Unpack

ChunkShardingSpec = _C.sharded.ChunkShardingSpec
DevicePlacementSpec = _C.sharded.DevicePlacementSpec
EnumerableShardingSpec = _C.sharded.EnumerableShardingSpec
RemoteDevice = _C.sharded.RemoteDevice
RemoteShard = _C.sharded.RemoteShard
Shard = _C.sharded.Shard
ShardMetadata = _C.sharded.ShardMetadata
ShardedTensorMetadata = _C.sharded.ShardedTensorMetadata
ShardingSpec = _C.sharded.ShardingSpec
TensorProperties = _C.sharded.TensorProperties
check_tensor = _C.sharded.check_tensor
get_chunk_sharding_params = _C.sharded.get_chunk_sharding_params
get_chunked_dim_size = _C.sharded.get_chunked_dim_size
get_split_size = _C.sharded.get_split_size
has_custom_sharding_spec_op = _C.sharded.has_custom_sharding_spec_op
infer_sharding_spec = _C.sharded.infer_sharding_spec
validate_non_overlapping_shards_metadata = _C.sharded.validate_non_overlapping_shards_metadata

Function = TypeVar("Function", bound=Callable[..., Any])


class GroupOptions(TypedDict, total=False):
    """Which ranks hold a tensor together. Default: those of `load_with_process_group`, or all of the world."""

    process_group: Any
    """A group of sherd or of torch.distributed; every member calls."""
    ranks: Sequence[int] | None
    """The world's ranks. A rank that is not among them holds nothing and takes no part."""
    init_rrefs: bool
    """Register every rank's shards with the others, after `sherd.init_rpc`: see remote_shards()."""


class TensorOptions(GroupOptions, total=False):
    """What the factories take by keyword."""

    dtype: torch.dtype | None
    """Default: torch's default dtype; of full(), the dtype that torch.full would choose."""
    layout: torch.layout
    requires_grad: bool
    pin_memory: bool
    memory_format: torch.memory_format


def checked_shape(operation: str, size: Sequence[Any]) -> list[int]:
    return checked_any_shape(operation, size, "(8, 8), or one after the other: 8, 8")


def _tensor_options(
    operation: str,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: torch.memory_format = torch.contiguous_format,
    **group: Unpack[GroupOptions],
) -> _C.sharded.ShardedTensorOptions:
    return _C.sharded.ShardedTensorOptions(
        group_options(operation, **group), dtype, layout, requires_grad, pin_memory, memory_format
    )


# Making ---------------------------------------------------------------------------------------------------------------


def empty(sharding_spec: ShardingSpec, *size: Any, **options: Unpack[TensorOptions]) -> torch.Tensor:
    """Memory that nobody has written to; every rank makes its own shards. TensorOptions says what `options` are.

    >>> import sherd
    >>> spec = sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
    >>> with sherd.fake_world(1, 2):
    ...     sherd.sharded.local_tensor(sherd.sharded.empty(spec, 5, 4)).shape
    torch.Size([2, 4])
    """
    made = _tensor_options("empty", **options)
    return _C.sharded.empty(checked_spec("empty", sharding_spec), checked_shape("empty", size), made)


def ones(sharding_spec: ShardingSpec, *size: Any, **options: Unpack[TensorOptions]) -> torch.Tensor:
    """Ones; see empty()."""
    made = _tensor_options("ones", **options)
    return _C.sharded.ones(checked_spec("ones", sharding_spec), checked_shape("ones", size), made)


def zeros(sharding_spec: ShardingSpec, *size: Any, **options: Unpack[TensorOptions]) -> torch.Tensor:
    """Zeros; see empty()."""
    made = _tensor_options("zeros", **options)
    return _C.sharded.zeros(checked_spec("zeros", sharding_spec), checked_shape("zeros", size), made)


def full(
    sharding_spec: ShardingSpec, size: Sequence[int], fill_value: Any, **options: Unpack[TensorOptions]
) -> torch.Tensor:
    """One value everywhere; see empty().

    >>> import sherd
    >>> spec = sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu"])
    >>> with sherd.fake_world(0, 1):
    ...     sherd.sharded.local_tensor(sherd.sharded.full(spec, (3,), 7))
    tensor([7, 7, 7])
    """
    made = _tensor_options("full", **options)
    shape = checked_shape("full", [size] if isinstance(size, Sequence) else (size,))
    return _C.sharded.full(checked_spec("full", sharding_spec), shape, fill_value, made)


def rand(sharding_spec: ShardingSpec, *size: Any, **options: Unpack[TensorOptions]) -> torch.Tensor:
    """Uniform in [0, 1): the same numbers for every spec (`sherd.manual_seed`); see empty()."""
    made = _tensor_options("rand", **options)
    return _C.sharded.rand(checked_spec("rand", sharding_spec), checked_shape("rand", size), made)


def randn(sharding_spec: ShardingSpec, *size: Any, **options: Unpack[TensorOptions]) -> torch.Tensor:
    """Normal with mean 0 and deviation 1; see rand()."""
    made = _tensor_options("randn", **options)
    return _C.sharded.randn(checked_spec("randn", sharding_spec), checked_shape("randn", size), made)


def init_from_local_shards(local_shards: Sequence[Shard], *size: Any, **options: Unpack[GroupOptions]) -> torch.Tensor:
    """A ShardedTensor of the shards that the ranks have, not copied. The ranks tell each other in one small exchange.

    One of the sizes may be None: it and the offsets along it are found from the shards, in the order of ranks.

    >>> import torch, sherd
    >>> from sherd.sharded import Shard, init_from_local_shards
    >>> def size(rank):
    ...     mine = Shard.from_tensor_and_offsets(torch.zeros(rank + 1, 3), [0, 0], rank)
    ...     return init_from_local_shards([mine], None, 3).shape
    >>> sherd.spawn(3, size)[0]
    torch.Size([6, 3])
    """
    operation = "init_from_local_shards"
    wanted: Sequence[Any] = size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size
    closed = iter(checked_shape(operation, [n for n in wanted if n is not None]))
    return _C.sharded.init_from_local_shards(
        checked_shards(operation, local_shards),
        [None if n is None else next(closed) for n in wanted],
        group_options(operation, **options),
    )


def init_from_local_shards_and_global_metadata(
    local_shards: Sequence[Shard],
    sharded_tensor_metadata: ShardedTensorMetadata,
    *,
    sharding_spec: ShardingSpec | None = None,
    **options: Unpack[GroupOptions],
) -> torch.Tensor:
    """The same where every rank knows the shards of all. Nothing is sent, so this rank's shards alone are checked."""
    operation = "init_from_local_shards_and_global_metadata"
    return _C.sharded.init_from_local_shards_and_global_metadata(
        checked_shards(operation, local_shards),
        sharded_tensor_metadata,
        group_options(operation, **options),
        None if sharding_spec is None else checked_spec(operation, sharding_spec),
    )


def init_from_local_tensor(
    local_tensor: torch.Tensor, sharding_spec: ShardingSpec, *global_size: Any, **options: Unpack[GroupOptions]
) -> torch.Tensor:
    """A ShardedTensor of one tensor per rank, which is this rank's shard of the spec, not copied. Nothing is sent."""
    operation = "init_from_local_tensor"
    return _C.sharded.init_from_local_tensor(
        check_any_tensor(operation, local_tensor),
        checked_spec(operation, sharding_spec),
        checked_shape(operation, global_size),
        group_options(operation, **options),
    )


def shard_tensor(
    tensor: torch.Tensor, sharding_spec: ShardingSpec, src_rank: int = 0, **options: Unpack[GroupOptions]
) -> torch.Tensor:
    """Cuts the tensor of one rank, the one whose place in the group is `src_rank`. The data of the others does not
    count, but its size and dtype do."""
    check_plain("shard_tensor", tensor, "sherd.sharded.from_dtensor(tensor)", "sherd.sharded.reshard(tensor, spec)")
    spec = checked_spec("shard_tensor", sharding_spec)
    return _C.sharded.shard_tensor(tensor, spec, src_rank, group_options("shard_tensor", **options))


def from_dtensor(tensor: torch.Tensor) -> torch.Tensor:
    """A ShardedTensor of the same memory as a DTensor whose elements lie on one rank each. Differentiable.

    >>> import torch, sherd
    >>> with sherd.fake_world(1, 4):
    ...     mesh = sherd.init_device_mesh("cpu", (4,))
    ...     x = sherd.sharded.from_dtensor(sherd.zeros(10, 2, device_mesh=mesh, placements=[sherd.Shard(0)]))
    ...     sherd.sharded.local_shards(x)
    [Shard([3:6, 0:2] on rank:1/cpu)]
    """
    return _C.sharded.from_dtensor(check_dtensor("from_dtensor", tensor))


# Reading --------------------------------------------------------------------------------------------------------------


def is_sharded_tensor(tensor: object) -> bool:
    """True for a ShardedTensor of sherd."""
    return isinstance(tensor, torch.Tensor) and _C.sharded.is_sharded_tensor(tensor)


def metadata(tensor: torch.Tensor) -> ShardedTensorMetadata:
    """The shards of all ranks, the size, and what the shards have in common."""
    return _C.sharded.metadata(check_sharded("metadata", tensor))


def local_shards(tensor: torch.Tensor) -> list[Shard]:
    """This rank's shards, not copied: none, one or several."""
    return _C.sharded.local_shards(check_sharded("local_shards", tensor))


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The data of this rank's only shard, not copied. Raises NotImplementedError where there is not exactly one."""
    return _C.sharded.local_tensor(check_sharded("local_tensor", tensor))


def sharding_spec(tensor: torch.Tensor) -> ShardingSpec:
    """How the tensor is cut.

    >>> import sherd
    >>> spec = sherd.sharded.ChunkShardingSpec(1, ["rank:1/cpu", "rank:0/cpu"])
    >>> with sherd.fake_world(0, 2):
    ...     sherd.sharded.sharding_spec(sherd.sharded.zeros(spec, 2, 4))
    ChunkShardingSpec(dim=1, rank:1/cpu, rank:0/cpu)
    """
    return _C.sharded.sharding_spec(check_sharded("sharding_spec", tensor))


def group(tensor: torch.Tensor) -> _C.Group | None:
    """The group that holds the tensor; None on a rank outside it."""
    return _C.sharded.group(check_sharded("group", tensor))


# Moving ---------------------------------------------------------------------------------------------------------------


def gather(
    tensor: torch.Tensor,
    dst: int = 0,
    out: torch.Tensor | None = None,
    enforce_dtype: bool = False,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes the whole tensor into `out` on the rank whose place in the group is `dst`; the others pass none.

    Values travel in the tensor's own dtype unless `dtype` names another, and are converted to that of `out`; with
    `enforce_dtype` an `out` of another dtype is refused.
    """
    _C.sharded.gather(check_sharded("gather", tensor), dst, out, dtype, enforce_dtype)


def reshard(tensor: torch.Tensor, resharding_spec: ShardingSpec) -> torch.Tensor:
    """The same values in other rectangles of the same group. Differentiable.

    >>> import torch, sherd
    >>> from sherd.sharded import ChunkShardingSpec
    >>> def columns(rank):
    ...     x = sherd.sharded.shard_tensor(torch.arange(6).reshape(3, 2), ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"]))
    ...     return sherd.sharded.local_tensor(sherd.sharded.reshard(x, ChunkShardingSpec(1, ["rank:0/cpu", "rank:1/cpu"])))
    >>> sherd.spawn(2, columns)[1].tolist()
    [[1], [3], [5]]
    """
    return _C.sharded.reshard(check_sharded("reshard", tensor), checked_spec("reshard", resharding_spec))


def reshard_(tensor: torch.Tensor, resharding_spec: ShardingSpec) -> torch.Tensor:
    """The same in place: this tensor and every other name for it. Not for tensors with a gradient to compute."""
    _C.sharded.reshard_(check_sharded("reshard_", tensor), checked_spec("reshard_", resharding_spec))
    return tensor


def collect_local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's only shard as a plain tensor, without the dim that is cut where it has one row left. Differentiable."""
    return _C.sharded.collect_local_shard(check_sharded("collect_local_shard", tensor))


def to_dtensor(
    tensor: torch.Tensor,
    device_mesh: _C.DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> torch.Tensor:
    """A DTensor of the same memory: on `device_mesh`, where the placements give every rank just the shard that it
    holds, or on a mesh that is found. Raises ValueError where there is none. Differentiable."""
    check_sharded("to_dtensor", tensor)
    if placements is None and device_mesh is None:
        return _C.sharded.to_dtensor(tensor, None, None)
    if placements is None:
        raise ValueError(
            error_text("to_dtensor", "a mesh without placements", "both, or neither: a mesh is found then",
                       device_mesh=device_mesh)
        )
    mesh = mesh_or_current("to_dtensor", device_mesh)
    return _C.sharded.to_dtensor(tensor, mesh, checked_placements("to_dtensor", placements, mesh))


# State, and the shards of others --------------------------------------------------------------------------------------


def save(tensor: torch.Tensor) -> bytes:
    """This rank's part as bytes."""
    return _C.sharded.save(check_sharded("save", tensor))


def load(part: bytes, **options: Unpack[GroupOptions]) -> torch.Tensor:
    """The tensor again, on the same rank of the same world. Raises RuntimeError on another; see rebuild().

    >>> import torch, sherd
    >>> from sherd import sharded
    >>> def again(rank):
    ...     x = sharded.rand(sharded.ChunkShardingSpec(0, ["rank:1/cpu", "rank:0/cpu"]), 5)
    ...     return torch.equal(sharded.load(sharded.save(x)), x)
    >>> sherd.spawn(2, again)
    [True, True]
    """
    return _C.sharded.load(part, group_options("load", **options))


def rebuild(parts: Sequence[bytes], sharding_spec: ShardingSpec, **options: Unpack[GroupOptions]) -> torch.Tensor:
    """A tensor that another world saved, cut anew: each rank gives the parts that it has, and together they are all."""
    spec = checked_spec("rebuild", sharding_spec)
    return _C.sharded.rebuild(list(parts), spec, group_options("rebuild", **options))


def remote_shards(tensor: torch.Tensor) -> dict[int, list[RemoteShard]]:
    """Handles to the shards of the other ranks of a tensor made with init_rrefs; `to_here()` fetches one."""
    return _C.sharded.remote_shards(check_sharded("remote_shards", tensor))


# Groups and operators of one's own ------------------------------------------------------------------------------------


class load_with_process_group(_C.sharded.GroupScope):
    """Inside `with`, ShardedTensors of this thread that name no group are made on this one. It does not nest.

    >>> import sherd
    >>> spec = sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu", "rank:2/cpu"])
    >>> with sherd.fake_world(2, 4) as world:
    ...     with sherd.sharded.load_with_process_group(world.group([0, 2])):
    ...         sherd.sharded.group(sherd.sharded.zeros(spec, 4)).ranks
    [0, 2]
    """

    def __init__(self, process_group: Any) -> None:
        super().__init__(torch_group("load_with_process_group", process_group))


def custom_sharded_op(op: str) -> Callable[[Function], Function]:
    """A decorator: the function is what the operator does where one of its tensors is a ShardedTensor.

    It gets the arguments of the operator in the order of its schema, defaults included, and returns its results.

    >>> import torch, sherd
    >>> from sherd.sharded import custom_sharded_op, local_tensor, sharding_spec, init_from_local_tensor
    >>> @custom_sharded_op("aten::erfinv")
    ... def erfinv(x):
    ...     return init_from_local_tensor(local_tensor(x).erfinv(), sharding_spec(x), x.shape)
    >>> with sherd.fake_world(0, 1):
    ...     x = sherd.sharded.zeros(sherd.sharded.ChunkShardingSpec(0, ["rank:0/cpu"]), 2)
    ...     local_tensor(torch.erfinv(x))
    tensor([0., 0.])
    """

    def register(function: Function) -> Function:
        _C.sharded.custom_sharded_op(op, function)
        return function

    return register


def custom_sharding_spec_op(sharding_spec_class: type[ShardingSpec], op: str) -> Callable[[Function], Function]:
    """The same for tensors of one kind of spec; custom_sharded_op() is asked first."""

    def register(function: Function) -> Function:
        _C.sharded.custom_sharding_spec_op(sharding_spec_class.__name__, op, function)
        return function

    return register


# The classes are of this module, for pickle and for people.
for _class in (ChunkShardingSpec, DevicePlacementSpec, EnumerableShardingSpec, RemoteDevice, RemoteShard, Shard, ShardMetadata,
               ShardedTensorMetadata, ShardingSpec, TensorProperties):  # fmt: skip
    _class.__module__ = __name__

__all__ = [
    "ChunkShardingSpec",
    "DevicePlacementSpec",
    "EnumerableShardingSpec",
    "GroupOptions",
    "RemoteDevice",
    "RemoteShard",
    "Shard",
    "ShardMetadata",
    "ShardedOptimizer",
    "ShardedTensorMetadata",
    "Sharder",
    "ShardingPlan",
    "ShardingPlanner",
    "ShardingSpec",
    "TensorOptions",
    "TensorProperties",
    "check_tensor",
    "collect_local_shard",
    "custom_sharded_op",
    "custom_sharding_spec_op",
    "empty",
    "from_dtensor",
    "from_torch",
    "full",
    "gather",
    "get_chunk_sharding_params",
    "get_chunked_dim_size",
    "get_split_size",
    "group",
    "has_custom_sharding_spec_op",
    "infer_sharding_spec",
    "init_from_local_shards",
    "init_from_local_shards_and_global_metadata",
    "init_from_local_tensor",
    "is_sharded_tensor",
    "load",
    "load_with_process_group",
    "local_shards",
    "local_tensor",
    "metadata",
    "named_params_with_sharded_tensor",
    "ones",
    "rand",
    "randn",
    "rebuild",
    "remote_shards",
    "reshard",
    "reshard_",
    "save",
    "shard_module",
    "shard_parameter",
    "shard_tensor",
    "sharding_spec",
    "to_dtensor",
    "to_torch",
    "validate_non_overlapping_shards_metadata",
    "zeros",
]
