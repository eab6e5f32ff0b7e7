#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace sherd::detail {

struct NamedModule {
  std::string name;  // "" for the root
  torch::nn::Module* module = nullptr;

  /// The full name of one of its own tensors: "layers.0.weight".
  std::string of(const std::string& tensor) const { return name.empty() ? tensor : name + "." + tensor; }
};

/// A module and all below it, named as named_modules() does; the root need not be held by a shared_ptr. A module that
/// stands in two places comes twice.
std::vector<NamedModule> modules_below(torch::nn::Module& root);

/// True where `pattern` is the name; `*`, `?` and `[abc]` stand for characters between two dots.
bool name_matches(std::string pattern, std::string name);

}  // namespace sherd::detail
