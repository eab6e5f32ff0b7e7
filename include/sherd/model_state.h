#pragma once
// The states of modules and optimizers, in the keys and kinds of Python's torch.distributed.checkpoint.state_dict: what
// was trained in Python goes on in C++, and the reverse.
//
//   sherd::StateDict state{{"model", sherd::get_model_state_dict(*model)},
//                          {"optim", sherd::get_optimizer_state_dict(*model, optimizer)}};
//   sherd::load(state, "runs/gpt/step-4000");
//   sherd::set_optimizer_state_dict(*model, optimizer, *state["optim"].dict());   // numbers; the tensors are there
//   already
//
// Tensors are given by reference, without a gradient: what is loaded into them is loaded into the module. The calls are
// made by every rank that has a part of the module, in the same order; those that communicate say so.

#include <ATen/core/Generator.h>

#include <functional>
#include <string>
#include <vector>

#include "sherd/state_dict.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace sherd {

struct StateDictOptions {
  /// get: whole tensors instead of DTensors and ShardedTensors; communicates. set: the state has whole tensors, of
  /// which each rank takes its part. (Whole tensors are taken without it, too.)
  bool full_state_dict = false;
  /// get: tensors on the CPU; with full_state_dict rank 0 alone gets them, and the others get an empty state.
  bool cpu_offload = false;
  /// Without parameters that do not require a gradient.
  bool ignore_frozen_params = false;
  /// set: what is missing, and what the module does not know, is an error.
  bool strict = true;
  /// set: rank 0 has the whole state, and the others get their parts of it from there; communicates. Needs
  /// full_state_dict.
  bool broadcast_from_rank0 = false;
  /// One level of keys, "state.fc.weight.exp_avg" and "param_groups.fc.weight.lr", so that stages of a pipeline, each
  /// with an optimizer of its own, save into one. States that are lists (LBFGS) cannot. set knows either form.
  bool flatten_optimizer_state_dict = false;
};

/// What of the module or optimizer the state had not, and what it had beside. Names as flatten_state_dict gives them.
struct IncompatibleKeys {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  bool operator==(const IncompatibleKeys&) const = default;
};

using Optimizers = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;

/// Parameters and buffers by their full names, those of a module before those of its children.
StateDict get_model_state_dict(const torch::nn::Module& module, const StateDictOptions& options = {});

/// {"state": {name: {"step": ..., "exp_avg": ...}}, "param_groups": [{"lr": ..., "params": [names]}]}: for each of
/// libtorch's optimizers what Python's of that name has; what libtorch lacks is there as Python's default. A parameter
/// that requires a gradient and has no state yet is given the one that its first step would begin with, zeros as a
/// rule. A number of steps is a tensor of its own. Throws c10::ValueError where the module has not all parameters of
/// the optimizer, and c10::NotImplementedError for an optimizer of another class.
StateDict get_optimizer_state_dict(const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                                   const StateDictOptions& options = {});
/// Several optimizers of one module, as one.
StateDict get_optimizer_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                   const StateDictOptions& options = {});

struct ModelAndOptimizerState {
  StateDict model;
  StateDict optimizer;
};
ModelAndOptimizerState get_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                      const StateDictOptions& options = {});

/// Copies the state's tensors into the module's, whatever placements and dtypes either has; communicates where both are
/// distributed, differently. Parameters on the meta device get memory. Throws before anything is changed: c10::Error
/// where the keys are others (if strict), c10::ValueError where sizes or kinds are.
IncompatibleKeys set_model_state_dict(torch::nn::Module& module, const StateDict& state,
                                      const StateDictOptions& options = {});

/// Options and state. Takes the form of get_optimizer_state_dict, the flat one, and torch.optim's own, where parameters
/// have numbers. A state of more parameters than the optimizer has, of several optimizers say, is not an error; nor are
/// options that libtorch does not have, unless they would change what a step does (maximize): that is a
/// c10::ValueError.
IncompatibleKeys set_optimizer_state_dict(const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                                          const StateDict& state, const StateDictOptions& options = {});
IncompatibleKeys set_optimizer_state_dict(const torch::nn::Module& module, const Optimizers& optimizers,
                                          const StateDict& state, const StateDictOptions& options = {});

/// Both. The keys are those of the model.
IncompatibleKeys set_state_dict(torch::nn::Module& module, const Optimizers& optimizers,
                                const ModelAndOptimizerState& state, const StateDictOptions& options = {});

/// All of a generator, sherd's or torch's, as a tensor of bytes, and back.
at::Tensor get_generator_state(const at::Generator& generator);
void set_generator_state(const at::Generator& generator, const at::Tensor& state);

}  // namespace sherd
