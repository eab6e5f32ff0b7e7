#pragma once
// Elements as the bytes that they are.

#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// Another view of a tensor that lies in memory in order. That of one element does so whatever its stride, by which
/// view() would refuse it.
inline at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}).view(c10::ScalarType::Byte);
}

}  // namespace sherd::detail
