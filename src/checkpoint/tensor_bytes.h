#pragma once
// The elements of a tensor as bytes, in row-major order, wherever it lies.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <span>

namespace sherd::detail {

/// The tensor contiguous, with every element in memory as it is: conjugates and negatives are computed.
at::Tensor elements_of(const at::Tensor& tensor);

/// Calls `use` with consecutive parts of the bytes, at most `limit` each (one element at least): the tensor's own
/// memory where it can be used as it is, else a copy of that part.
void for_each_part(const at::Tensor& tensor, int64_t limit, const std::function<void(std::span<const std::byte>)>& use);

}  // namespace sherd::detail
