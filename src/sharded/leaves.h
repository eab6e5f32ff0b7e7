#pragma once
#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// Makes the gradient that reaches a leaf take the leaf's rectangles before it is accumulated: it may be whole, or lie
/// in others. Nothing where the tensor is no leaf with a gradient, or was settled before.
void settle_leaf(const at::Tensor& tensor);

}  // namespace sherd::detail
