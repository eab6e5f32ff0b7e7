#pragma once
// The tensors of a call, as rules count them: those of lists laid flat, `out` arguments left out.

#include <vector>

#include "tensor/boxes_meta.h"
#include "tensor/op_info.h"

namespace sherd::detail {

struct CallTensor {
  at::Tensor tensor;
  size_t argument = 0;
  int element = -1;  // of a list
};
std::vector<CallTensor> tensors_of(const OpInfo& info, const torch::jit::Stack& stack);

/// Puts another tensor in the place of one, in the arguments of the call alone.
void put_tensor(torch::jit::Stack& arguments, const CallTensor& place, const at::Tensor& tensor);

/// The same values in the boxes of `layout`, which is of the same kind as the tensor's. Throws c10::Error where the
/// tensor is another group's, c10::ValueError where a rank's own pieces are other ones.
at::Tensor aligned(const std::string& operation, const at::Tensor& tensor, const BoxLayoutPtr& layout);

}  // namespace sherd::detail
