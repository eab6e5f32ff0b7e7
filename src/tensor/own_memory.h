#pragma once
// Whether a tensor's elements can be read and written where it is.

#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// Throws c10::ValueError for a tensor that has elements and no memory for them that this library may touch: a subclass
/// of Python's that wraps others (DTensor of torch.distributed, FakeTensor), a tensor of zeros that torch keeps as
/// such, one of a transform (vmap). Tensors of sherd's kinds and those on the meta device pass.
void require_memory(const char* operation, const at::Tensor& tensor);

/// For readers alone: zeros that torch keeps without memory as ordinary ones, others as they are.
at::Tensor with_zeros(const at::Tensor& tensor);

}  // namespace sherd::detail
