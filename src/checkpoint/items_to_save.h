#pragma once
// What a rank writes of a checkpoint.

#include <ATen/core/Tensor.h>

#include <string>

#include "format/archive.h"

namespace sherd::detail {

/// A chunk that this rank writes.
struct ItemToSave {
  size_t leaf;  // a place in AgreedState::leaves
  Dims offsets;
  format::TensorItem item;
  at::Tensor data;
};
/// An object that it writes, as torch.save's bytes.
struct ObjectToSave {
  size_t leaf;
  std::string bytes;
};

}  // namespace sherd::detail
