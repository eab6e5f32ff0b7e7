#pragma once
// Copies of tensors in memory of their own.

#include <ATen/core/Tensor.h>

#include <vector>

namespace sherd::detail {

/// Replaces each tensor by a copy of it in `memory`, a tensor of bytes on the CPU that is made anew where it is too
/// small: pinned where tensors come from a GPU. Returns when all copies are made.
void copy_into(at::Tensor& memory, const std::vector<at::Tensor*>& tensors);

}  // namespace sherd::detail
