#pragma once
// Clipping gradients before an optimizer's step, over parameters of any placements and meshes.

#include <ATen/core/Tensor.h>

#include <vector>

#include "sherd/group.h"

namespace sherd {

struct ClipOptions {
  /// The norm: 2, 1, any other power, or plus or minus infinity.
  double norm_type = 2;
  /// Throw c10::Error, on every rank alike, where the norm is infinite or not a number; the gradients stay as they are.
  bool error_if_nonfinite = false;
  /// Groups whose ranks hold different parameters (the stages of a pipeline: {mesh.group("pp")}): the norm is that of
  /// all of these together. Every rank of them calls.
  std::vector<Group> across = {};
};

/// Scales the gradients so that all of them together, seen as one vector, have a norm of `max_norm` at the most;
/// returns the norm that they had. It is a plain tensor, the same on every rank, and what
/// torch::nn::utils::clip_grad_norm_ finds on one device.
///
/// DTensors and plain tensors may be mixed; a plain tensor counts as whole on every rank, an undefined gradient not at
/// all. Ranks tell each other one number per parameter, in one all_reduce for each mesh. Nothing waits for a GPU,
/// unless error_if_nonfinite asks for it.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const ClipOptions& options = {});
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type,
                           bool error_if_nonfinite = false);

/// Clamps every element of the gradients to [-clip_value, clip_value]. Communicates only where a gradient is Partial,
/// which those of leaves are not.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace sherd
