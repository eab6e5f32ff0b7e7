#pragma once
// A module as a list of names: what the functions that make it parallel need to know of it. They take torch::nn modules
// as they are; a binding of another language gives the outline of its own.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace sherd {

struct NamedTensor {
  std::string name;  // "blocks.0.up.weight"
  at::Tensor tensor;
};

struct ModuleOutline {
  std::vector<NamedTensor> parameters;  // each once
  std::vector<NamedTensor> buffers;
  std::vector<std::string> modules;   // all but the module itself: "blocks.0.up"
  std::vector<std::string> in_lists;  // those that are elements of a ModuleList
  std::vector<std::string> in_rows;   // those that are elements of a Sequential
};

ModuleOutline outline_of(const torch::nn::Module& module);

}  // namespace sherd
