#pragma once
// What is known of a tensor beside its size: what checkpoints keep of it, and what the pieces of one tensor share.

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <tuple>

namespace at {
class Tensor;
}

namespace sherd {

/// What the pieces of one tensor have in common.
struct TensorProperties {
  c10::ScalarType dtype;
  c10::Layout layout = c10::kStrided;
  bool requires_grad = false;
  c10::MemoryFormat memory_format = c10::MemoryFormat::Contiguous;
  bool pin_memory = false;

  /// With the default dtype of now.
  TensorProperties();
  explicit TensorProperties(c10::ScalarType type) : dtype(type) {}
  /// dtype, layout, requires_grad and pinning of a tensor.
  static TensorProperties create_from_tensor(const at::Tensor& tensor);

  /// As PyTorch's checkpoints keep them: the memory format is 0 contiguous, 1 channels_last, 2 preserve. Both throw
  /// c10::ValueError for another one.
  using Tuple = std::tuple<c10::ScalarType, c10::Layout, bool, int, bool>;
  Tuple to_tuple() const;
  static TensorProperties from_tuple(const Tuple& tuple);

  bool operator==(const TensorProperties&) const = default;
};

}  // namespace sherd
