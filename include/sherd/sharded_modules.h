#pragma once
// ShardedTensors as parameters of torch::nn modules: sharding them by a plan, optimizers, state dicts.

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sherd/sharded_tensor.h"

namespace sherd::sharded {

/// Shards a whole module in its own way. The result takes the module's place among its parent's children. (A parent
/// that calls its child through a member of its own calls the old one: a Sharder that changes the module in place and
/// returns it has no such trouble.)
class Sharder {
 public:
  virtual ~Sharder() = default;
  virtual std::shared_ptr<torch::nn::Module> shard(const std::shared_ptr<torch::nn::Module>& module) = 0;
};

struct ShardingPlan {
  using Entry = std::variant<ShardingSpec, std::shared_ptr<Sharder>>;
  /// By full name: of a parameter ("fc1.weight") a spec, of a module ("tower") a Sharder.
  std::map<std::string, Entry> plan = {};
  /// How the outputs of modules are cut: C++ modules have no hooks, so forward() calls shard_output(plan, name, y).
  std::map<std::string, ShardingSpec> output_plan = {};
  /// The modules whose output shard_output gives as this rank's plain part.
  std::vector<std::string> return_local_tensor = {};
};

/// Makes plans for modules.
class ShardingPlanner {
 public:
  virtual ~ShardingPlanner() = default;
  virtual ShardingPlan build_plan(torch::nn::Module& module) = 0;
};

/// Ranks that check a module before they communicate, as a Sharder may: `say` runs on every rank of the group. A rank
/// where it threw throws that, and the others c10::ValueError naming that rank and what it says; the lines that it
/// returns must be the same everywhere, or all throw c10::ValueError naming two ranks. A rank outside the group checks
/// for itself.
void agree(const GroupOptions& options, std::string_view operation, const std::function<std::string()>& say);

/// Makes a parameter of the module itself ("weight") a ShardedTensor, in place: every handle to it sees the change. The
/// data is that of the rank at place `src` of the group. Every rank of the group calls it. Throws c10::ValueError where
/// there is no such parameter, here or on another rank.
void shard_parameter(torch::nn::Module& module, const std::string& name, const ShardingSpec& spec, int64_t src = 0,
                     const GroupOptions& options = {});

/// Carries out a plan. Throws before anything changes, on every rank: c10::ValueError for a name that the module does
/// not have and for ranks with different plans, c10::Error for a parameter inside a module that has a Sharder.
void shard_module(torch::nn::Module& module, const ShardingPlan& plan, int64_t src = 0,
                  const GroupOptions& options = {});
template <class Impl>
void shard_module(torch::nn::ModuleHolder<Impl>& module, const ShardingPlan& plan, int64_t src = 0,
                  const GroupOptions& options = {}) {
  shard_module(*module, plan, src, options);
}

/// What the plan says of the output of module `name`: resharded, this rank's part of it, or as it is.
at::Tensor shard_output(const ShardingPlan& plan, const std::string& name, const at::Tensor& output);

/// The ShardedTensors among the parameters and buffers, by full name; and putting such tensors in their places.
/// load throws c10::ValueError for a name that the module does not have or a tensor of another size, before anything
/// changes.
std::map<std::string, at::Tensor> sharded_state_dict(const torch::nn::Module& module);
void load_sharded_state_dict(torch::nn::Module& module, const std::map<std::string, at::Tensor>& state);

/// The module's parameters with their names, sharded or not.
std::vector<std::pair<std::string, at::Tensor>> named_params_with_sharded_tensor(const torch::nn::Module& module);

/// An optimizer that sees this rank's shards as plain tensors: for optimizers with kernels of their own. Those of
/// torch::optim also step on ShardedTensors themselves.
class ShardedOptimizer {
 public:
  using Parameters = std::vector<std::pair<std::string, at::Tensor>>;
  /// `make` gets this rank's shards and the plain parameters: [](auto params) { return std::make_unique<SGD>(...); }
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
  ShardedOptimizer(Parameters parameters, const Factory& make);

  /// Forgets the gradients, of the parameters and of their shards.
  void zero_grad(bool set_to_none = true);
  /// Takes the parameters' gradients as they are.
  void step();

  /// The optimizer of this rank's shards; its state is this rank's part of the state.
  torch::optim::Optimizer& local() { return *optimizer_; }
  /// State tensors with the size of their shard, as ShardedTensors by "<parameter>.<name>". `names` says what the
  /// optimizer keeps: {"momentum_buffer", getter}.
  using Getter = std::function<at::Tensor(const torch::optim::OptimizerParamState&)>;
  std::map<std::string, at::Tensor> state_dict(const std::map<std::string, Getter>& names) const;

 private:
  Parameters parameters_;
  std::vector<std::vector<at::Tensor>> shards_;  // of each parameter; itself where it is plain
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace sherd::sharded
