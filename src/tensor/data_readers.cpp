// Composite operators that read the numbers of an operand. They would find no memory in a DTensor. Operands that decide
// what else is called (lengths, cuts) are made whole first; a shortcut is not taken.

#include <ATen/ops/ctc_loss_native.h>
#include <ATen/ops/max_pool1d_with_indices.h>
#include <ATen/ops/tensor_split_native.h>
#include <torch/library.h>

#include "sherd/dtensor.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;

Tensor readable(const Tensor& tensor) { return meta_of(tensor) != nullptr ? full_tensor(tensor.detach()) : tensor; }

std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& where, int64_t dim) {
  return at::native::tensor_split(self, readable(where), dim);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  return at::native::ctc_loss(log_probs, targets, readable(input_lengths), readable(target_lengths), blank, reduction,
                              zero_infinity);
}

// Without gradients torch pools the numbers of a CPU's tensor itself.
Tensor max_pool1d(const Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                  at::IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(at::max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

void add_readers(torch::Library& library) {
  library.impl("tensor_split.tensor_indices_or_sections", tensor_split);
  library.impl("ctc_loss.Tensor", ctc_loss);
  library.impl("max_pool1d", max_pool1d);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, library) { add_readers(library); }
TORCH_LIBRARY_IMPL(aten, PrivateUse2, library) { add_readers(library); }  // where autograd is off altogether

}  // namespace
}  // namespace sherd::detail
