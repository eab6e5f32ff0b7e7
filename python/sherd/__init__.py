"""Sharded tensors for torch: DTensors that are ordinary torch.Tensor objects, from the C++ library of the same name.

>>> import torch, sherd
>>> def train(rank):
...     mesh = sherd.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
...     w = sherd.distribute_tensor(torch.ones(8, 8), mesh, [sherd.Shard(0), sherd.Replicate()]).requires_grad_()
...     (w @ w.t()).sum().backward()
...     return sherd.placements(w.grad), sherd.full_tensor(w.grad)[0, 0].item()
>>> sherd.spawn(4, train)[0]
((Shard(0), Replicate()), 16.0)
"""

from __future__ import annotations

import os as _os

from . import _load  # noqa: F401  (first: it compares the versions of torch)
from . import _compile, _methods, _mixing, _shared_memory, sharded
from ._C import (
    Box,
    CollectiveCall,
    CommRecorder,
    DamagedCheckpoint,
    DeviceMesh,
    ExplicitRedistribution,
    ExpertBatch,
    Explanation,
    Group,
    Layout,
    Mesh,
    Partial,
    Ragged,
    RemoteTensor,
    Replicate,
    Shard,
    StridedShard,
    Work,
    World,
    XlaSharding,
    agree,
    all_gather,
    all_gather_text,
    all_reduce,
    all_to_all,
    balanced_shard,
    barrier,
    broadcast,
    check_tiling,
    current_mesh,
    draw_html,
    parse_placements,
    receive,
    reduce_scatter,
    register_rule,
    rules_of,
    scatter,
    send,
    set_strict,
)
from ._arguments import Placement
from ._build import TORCH_VERSION as torch_version
from ._build import VERSION as __version__
from ._averages import ExponentialMovingAverage
from ._checkpoint import OpaqueObject, load, load_state_dict, save, save_async
from ._checkpoint_files import diff_checkpoints, inspect_checkpoint, rewrite_checkpoint, verify_checkpoint
from ._checkpoint_manager import CheckpointManager
from ._comm_debug import CommDebugMode, explain_step, named_scope
from ._experts import expert_parallel
from ._explain import explain
from ._grad_scaler import GradScaler
from ._local_map import local_map
from ._local_shards import (
    Checkpointable,
    ChunkMetadata,
    LocalShardsWrapper,
    ShardIndex,
    TensorStorageMetadata,
    WriteItem,
    checkpointable,
    is_empty_shard,
    is_local_shards,
    local_chunks,
    local_offsets,
    local_shards,
    local_sizes,
    size_bytes,
    storage_metadata,
)
from ._mesh import init_device_mesh
from ._clip_grad import clip_grad_norm_, clip_grad_value_
from ._data_parallel import GradientSync, data_parallel, fully_shard
from ._module import distribute_module
from ._moving import (
    from_boxes,
    measure_costs,
    read_boxes,
    redistribute,
    redistribute_async,
    redistribute_together,
    redistribution_text,
    set_costs,
)
from ._pictures import Report, bytes_here, visualize_sharding, visualize_sharding_html, visualize_sharding_svg
from ._pipeline import Pipeline, schedule_actions
from ._random import (
    Generator,
    current_generator,
    generator_scope,
    manual_seed,
    normal,
    rand,
    randint,
    randn,
    randperm,
)
from ._recompute import recompute
from ._rpc import has_rpc, init_rpc, rpc_names, share_tensors, shutdown_rpc
from ._sampler import ShardedSampler
from ._scopes import ContextParallel, LossParallel, ShardedInit, context_parallel_shard
from ._tensor import (
    arange,
    constrain,
    device_mesh,
    distribute_parameter_,
    distribute_tensor,
    empty,
    from_local,
    full,
    full_tensor,
    is_dtensor,
    layout,
    ones,
    placements,
    to_local,
    visualize,
    zeros,
)
from ._tensor_parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from ._torch import from_torch, to_torch
from ._world import fake_world, init, spawn
from ._xla import register_xla_bridge, xla_sharding

_methods.install()
_mixing.install()
_shared_memory.register()
_compile.skip_package()

cmake_prefix_path: str = _os.path.dirname(_os.path.abspath(__file__))
"""For CMAKE_PREFIX_PATH, so that `find_package(sherd)` finds the library that this package carries."""

__all__ = [
    "Box",
    "Checkpointable",
    "ChunkMetadata",
    "CheckpointManager",
    "CollectiveCall",
    "ColwiseParallel",
    "CommDebugMode",
    "CommRecorder",
    "ContextParallel",
    "DamagedCheckpoint",
    "DeviceMesh",
    "ExpertBatch",
    "Explanation",
    "ExplicitRedistribution",
    "ExponentialMovingAverage",
    "Generator",
    "GradScaler",
    "GradientSync",
    "Group",
    "Layout",
    "LocalShardsWrapper",
    "LossParallel",
    "Mesh",
    "OpaqueObject",
    "Partial",
    "Pipeline",
    "Placement",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "Ragged",
    "RemoteTensor",
    "Replicate",
    "Report",
    "RowwiseParallel",
    "SequenceParallel",
    "Shard",
    "ShardIndex",
    "ShardedInit",
    "ShardedSampler",
    "StridedShard",
    "TensorStorageMetadata",
    "Work",
    "World",
    "WriteItem",
    "XlaSharding",
    "agree",
    "all_gather",
    "all_gather_text",
    "all_reduce",
    "all_to_all",
    "arange",
    "balanced_shard",
    "barrier",
    "broadcast",
    "bytes_here",
    "check_tiling",
    "checkpointable",
    "clip_grad_norm_",
    "clip_grad_value_",
    "cmake_prefix_path",
    "constrain",
    "context_parallel_shard",
    "current_generator",
    "current_mesh",
    "data_parallel",
    "device_mesh",
    "diff_checkpoints",
    "distribute_module",
    "distribute_parameter_",
    "distribute_tensor",
    "draw_html",
    "empty",
    "expert_parallel",
    "explain",
    "explain_step",
    "fake_world",
    "from_boxes",
    "from_local",
    "from_torch",
    "full",
    "full_tensor",
    "fully_shard",
    "generator_scope",
    "has_rpc",
    "init",
    "init_device_mesh",
    "init_rpc",
    "inspect_checkpoint",
    "is_dtensor",
    "is_empty_shard",
    "is_local_shards",
    "layout",
    "load",
    "load_state_dict",
    "local_chunks",
    "local_map",
    "local_offsets",
    "local_shards",
    "local_sizes",
    "manual_seed",
    "measure_costs",
    "named_scope",
    "normal",
    "ones",
    "parallelize_module",
    "parse_placements",
    "placements",
    "rand",
    "randint",
    "randn",
    "randperm",
    "read_boxes",
    "receive",
    "recompute",
    "redistribute",
    "redistribute_async",
    "redistribute_together",
    "redistribution_text",
    "reduce_scatter",
    "register_rule",
    "register_xla_bridge",
    "rewrite_checkpoint",
    "rpc_names",
    "rules_of",
    "save",
    "save_async",
    "scatter",
    "schedule_actions",
    "send",
    "set_costs",
    "set_strict",
    "sharded",
    "share_tensors",
    "shutdown_rpc",
    "size_bytes",
    "spawn",
    "storage_metadata",
    "to_local",
    "to_torch",
    "torch_version",
    "verify_checkpoint",
    "visualize",
    "visualize_sharding",
    "visualize_sharding_html",
    "visualize_sharding_svg",
    "xla_sharding",
    "zeros",
]
