#pragma once
// A batch cut into microbatches, and put together again.

#include <ATen/core/Tensor.h>

#include <vector>

namespace sherd::detail {

/// `count` equal parts along dim 0. Of a DTensor each rank's rows are cut, so that nothing moves and every microbatch
/// lies on all ranks. Throws c10::ValueError, from shapes and placements alone, where the rows do not divide.
std::vector<at::Tensor> cut_batch(const char* what, const at::Tensor& batch, int64_t count);

/// The inverse.
at::Tensor join_batch(const std::vector<at::Tensor>& parts);

}  // namespace sherd::detail
