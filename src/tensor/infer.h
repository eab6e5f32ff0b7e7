#pragma once
// The shapes of an operator's results, found by running it on tensors without data: the same on every rank, whatever
// its part, and equal to what one device would give.

#include <optional>
#include <vector>

#include "sherd/box.h"
#include "tensor/op_info.h"

namespace sherd::detail {

struct Geometry {
  bool defined = false;
  Dims sizes;
  Dims strides;
};

/// The results of the call on the stack, as tensors without data; nothing where the operator cannot tell without data,
/// or refuses the call.
std::optional<torch::jit::Stack> run_without_data(const c10::OperatorHandle& op, const OpInfo& info,
                                                  const torch::jit::Stack& stack);

/// Per result of the operator its tensors, one or, for a list, several; nothing where the operator cannot tell without
/// data, or refuses the call.
std::optional<std::vector<std::vector<Geometry>>> infer_results(const c10::OperatorHandle& op, const OpInfo& info,
                                                                const torch::jit::Stack& stack);

}  // namespace sherd::detail
