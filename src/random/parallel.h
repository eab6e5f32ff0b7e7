#pragma once
// A tensor's elements, shared out among torch's threads.

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// f(begin, end) for ranges of the elements of a contiguous tensor, by several threads where there are more than
/// `grain`. Through TensorIterator: at::parallel_for would run on OpenMP threads of this library's own, beside torch's.
template <class F>
void for_ranges(const at::Tensor& tensor, int64_t grain, F f) {
  if (tensor.numel() == 0) return;
  const at::Tensor flat = tensor.view({-1});
  auto iterator = at::TensorIteratorConfig().check_all_same_dtype(false).resize_outputs(false).add_output(flat).build();
  const auto* base = static_cast<const char*>(flat.const_data_ptr());
  const auto size = static_cast<int64_t>(flat.element_size());
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t count, int64_t rows) {
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t begin = (data[0] + row * strides[1] - base) / size;
          f(begin, begin + count);
        }
      },
      grain);
}

}  // namespace sherd::detail
