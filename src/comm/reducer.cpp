#include "comm/reducer.h"

#include <ATen/ops/from_blob.h>

#include "comm/sync_backend.h"

namespace sherd::detail {

Reducer::Reducer(const at::Tensor& like, ReduceOp op, int ranks)
    : dtype_(like.scalar_type()),
      op_(op),
      element_(like.element_size()),
      loop_(reduce_loop(dtype_, op)),
      parts_(static_cast<size_t>(ranks)) {}

void Reducer::into(std::byte* out, size_t bytes) const {
  if (loop_ != nullptr) return loop_(out, parts_.data(), parts_.size(), bytes / element_);
  const auto tensor = [&](const void* data) {
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes / element_)}, at::TensorOptions(dtype_));
  };
  std::vector<at::Tensor> tensors;
  for (const void* part : parts_) tensors.push_back(tensor(part));
  reduce_into(tensor(out), tensors, op_);
}

}  // namespace sherd::detail
