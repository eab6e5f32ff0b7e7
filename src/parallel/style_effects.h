#pragma once
// What a tensor-parallel style does to a module: where its tensors go, and what is wished of their use.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/call_wishes.h"
#include "parallel/named_modules.h"
#include "sherd/tensor_parallel.h"
#include "tensor/wishes.h"

namespace sherd::detail {

/// One tensor of a module under a style.
struct Effect {
  std::string name;  // of the tensor, from the root
  at::Tensor tensor;
  Placement placement = Replicate();
  std::optional<Wish> product = {};
  std::optional<Wish> lookup = {};
  std::optional<Wish> norm = {};
};

struct Effects {
  std::vector<Effect> tensors;
  std::optional<CallWish> call = {};  // for what no parameter can carry
};

/// True for the styles that say where parameters go: a module has one of them at the most.
bool places_parameters(const ParallelStyle& style);

/// "ColwiseParallel, output S(-1)": what of a style must be the same on every rank.
std::string text_of(const ParallelStyle& style);

/// Throws c10::ValueError where the style cannot take the module. `alone`: the module has no other style, so that a
/// PrepareModule* may ride on its weight.
Effects effects_of(const ParallelStyle& style, const NamedModule& module, const DeviceMesh& mesh, bool alone);

}  // namespace sherd::detail
