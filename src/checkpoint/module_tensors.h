#pragma once
// The parameters and buffers of a module by their names.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace sherd::detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

/// In the order of Python's state_dict(): of each module its parameters, its buffers, its children. A tensor that
/// stands at two places comes twice; undefined ones are left out.
std::vector<NamedTensor> module_tensors(const torch::nn::Module& module);

/// The names of parameters, by identity: several where one is shared, the first of them first.
using ParameterNames = std::unordered_map<const void*, std::vector<std::string>>;
ParameterNames parameter_names(const torch::nn::Module& module);

}  // namespace sherd::detail
