#pragma once
// Tensor parallelism for modules of libtorch: which of a module's parameters are cut, and where its input and its
// output lie. The names and what they do are PyTorch's (torch.distributed.tensor.parallel); docs/training.md shows
// them.
//
// A module's forward cannot be hooked in C++. A style therefore rides on the module's parameters, and the operator that
// uses them (linear, embedding, a norm) moves its input and its output. What has no parameter to ride on takes effect
// through sherd::call(module, x): PrepareModule*, use_local_output, and SequenceParallel on a module without a weight.
//
// Layouts speak of the one axis of the mesh that parallelize_module is given. Where a tensor lives on a larger mesh, as
// a batch that is cut over another axis does, the other axes are left as they are.
//
// Two things differ from Python's, since a DTensor behaves as the whole tensor:
// - outputs stay DTensors unless use_local_output is set;
// - a plain input is the whole tensor, the same on every rank, unless input_layouts says what part of it each rank has.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sherd/call.h"
#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// Linear by its outputs: weight and bias Shard(0). Embedding by its columns: weight Shard(1). The input is brought to
/// Replicate.
struct ColwiseParallel {
  std::optional<Placement> input_layouts = {};
  Placement output_layouts = Shard(-1);
  bool use_local_output = false;
  bool operator==(const ColwiseParallel&) const = default;
};

/// Linear by its inputs: weight Shard(1), bias replicated; the input is brought to Shard(-1). Embedding by its rows:
/// weight Shard(0), the ids are brought to Replicate. The partial results are summed up: an all_reduce for Replicate,
/// a reduce_scatter for a Shard.
struct RowwiseParallel {
  std::optional<Placement> input_layouts = {};
  Placement output_layouts = Replicate();
  bool use_local_output = false;
  bool operator==(const RowwiseParallel&) const = default;
};

/// Any module that treats the places of a sequence alike (norms, dropout): its parameters are replicated, its input and
/// output are cut along `sequence_dim`.
struct SequenceParallel {
  int64_t sequence_dim = 1;
  std::optional<Placement> input_layouts = {};
  bool use_local_output = false;
  bool operator==(const SequenceParallel&) const = default;
};

/// MultiheadAttention by its heads: query, key and value projections by their outputs, out_proj by its inputs. The
/// packed in_proj_weight is StridedShard(0, 3): each rank has its heads' rows of all three. Nothing is moved between
/// the projections where the number of heads is a multiple of the ranks; otherwise heads are gathered.
struct AttentionParallel {
  std::optional<Placement> input_layouts = {};
  Placement output_layouts = Replicate();
  bool use_local_output = false;
  bool operator==(const AttentionParallel&) const = default;
};

/// One layout per argument, nullopt for those that are left alone (and those that are no tensors).
using ArgumentLayouts = std::vector<std::optional<Placement>>;

/// The arguments of a module are brought to `desired_input_layouts`; plain ones are what `input_layouts` says.
struct PrepareModuleInput {
  ArgumentLayouts input_layouts = {};
  ArgumentLayouts desired_input_layouts = {};
  bool use_local_output = false;  // the module gets local tensors
  bool operator==(const PrepareModuleInput&) const = default;
};

/// The same for the results of a module.
struct PrepareModuleOutput {
  ArgumentLayouts output_layouts = {};
  ArgumentLayouts desired_output_layouts = {};
  bool use_local_output = false;
  bool operator==(const PrepareModuleOutput&) const = default;
};

struct PrepareModuleInputOutput {
  ArgumentLayouts input_layouts = {};
  ArgumentLayouts desired_input_layouts = {};
  bool use_local_input = false;
  ArgumentLayouts output_layouts = {};
  ArgumentLayouts desired_output_layouts = {};
  bool use_local_output = false;
  bool operator==(const PrepareModuleInputOutput&) const = default;
};

using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, AttentionParallel,
                                   PrepareModuleInput, PrepareModuleOutput, PrepareModuleInputOutput>;

/// "ColwiseParallel".
std::string name_of(const ParallelStyle& style);

/// Styles by the names of modules, as named_modules() gives them; "" is the module itself. `*`, `?` and `[abc]` stand
/// for characters between two dots: "layers.*.fc1". A module may have one style that cuts its parameters, and any
/// number of PrepareModule*.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

/// Makes the parameters and buffers of `module` DTensors on `mesh`, of one axis, in place: as the plan says, and
/// replicated where it says nothing. Those that are distributed over the axis by an earlier call, of a child say, stay
/// as they are. Every rank gets the values of the axis's first rank.
///
/// Every rank of the mesh calls it; one small exchange makes sure that they have the same module and plan. Throws
/// c10::ValueError on every rank, before anything changes, where
/// - an entry of the plan names no module, or a style cannot take the module that it names;
/// - the mesh has several axes, or a parameter is cut over the axis already;
/// - a parameter that two modules share would be placed or used in two ways;
/// - ranks have different modules or plans.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan);
/// A style for the module itself.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelStyle& style);

template <class Impl>
void parallelize_module(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh, const ParallelPlan& plan) {
  parallelize_module(*module, mesh, plan);
}
template <class Impl>
void parallelize_module(torch::nn::ModuleHolder<Impl>& module, const DeviceMesh& mesh, const ParallelStyle& style) {
  parallelize_module(*module, mesh, style);
}

struct TransformerPlanOptions {
  /// Cut what lies between attention and the linear layers, too: norms, dropout and residuals, along the sequence.
  bool sequence_parallel = false;
  /// libtorch's layers take [sequence, batch, width].
  int64_t sequence_dim = 0;
};

/// The plan of a TransformerEncoderLayer or TransformerDecoderLayer called `prefix` ("layers.0", "layers.*", "" for the
/// module itself): attention by heads, linear1 by its outputs, linear2 by its inputs.
ParallelPlan transformer_layer_plan(const std::string& prefix = "", const TransformerPlanOptions& options = {});

}  // namespace sherd
