#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace sherd::python {

/// The keyword arguments that Python's factories share.
inline at::TensorOptions options_of(std::optional<c10::ScalarType> dtype, bool requires_grad) {
  at::TensorOptions options;
  if (dtype) options = options.dtype(*dtype);
  return options.requires_grad(requires_grad);
}

}  // namespace sherd::python
