#pragma once
// For rewrites: reading the arguments of a call and answering it.

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "tensor/meta.h"
#include "tensor/op_info.h"

namespace sherd::detail {

inline const c10::IValue& argument(const torch::jit::Stack& stack, const c10::OperatorHandle& op, size_t i) {
  return stack[stack.size() - op.schema().arguments().size() + i];
}

/// A copy of the call's arguments, to be changed and called with.
inline torch::jit::Stack arguments_of(const torch::jit::Stack& stack, const c10::OperatorHandle& op) {
  return {stack.end() - static_cast<int64_t>(op.schema().arguments().size()), stack.end()};
}

/// Half precision is worked on in float, as torch's own kernels do.
inline at::Tensor widened(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == c10::kHalf || tensor.scalar_type() == c10::kBFloat16;
  return half ? tensor.to(c10::kFloat) : tensor;
}

inline std::optional<at::Tensor> optional_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? std::optional(value.toTensor()) : std::nullopt;
}

inline void answer(const c10::OperatorHandle& op, torch::jit::Stack& stack, c10::IValue result) {
  torch::jit::drop(stack, op.schema().arguments().size());
  stack.push_back(std::move(result));
}

inline Placements whole_on(const DeviceMesh& mesh) { return Placements(static_cast<size_t>(mesh.ndim()), Replicate()); }

/// Whether more than one rank holds parts of a dim.
inline bool is_sharded(const DTensorMeta& meta, int64_t dim) {
  for (size_t axis = 0; axis < meta.spec->placements.size(); ++axis) {
    if (sharded_dim(meta.spec->placements[axis]) == dim && meta.spec->mesh.size(static_cast<int64_t>(axis)) > 1) {
      return true;
    }
  }
  return false;
}

/// The dim that an argument names, where the tensor is sharded along it.
inline std::optional<int64_t> sharded_dim_named(const at::Tensor& self, const c10::IValue& dim) {
  const DTensorMeta* meta = meta_of(self);
  const int64_t d = dim.toInt() < 0 ? dim.toInt() + self.dim() : dim.toInt();
  if (meta == nullptr || d < 0 || d >= self.dim() || !is_sharded(*meta, d)) return std::nullopt;
  return d;
}

/// The dims that an int[]? argument names, all where it names none; nothing where one is out of range.
inline std::optional<Dims> dims_named(const at::Tensor& self, const c10::IValue& value) {
  Dims dims = value.isIntList() ? value.toIntVector() : Dims();
  if (dims.empty()) {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  for (int64_t& d : dims) {
    if (d < 0) d += self.dim();
    if (d < 0 || d >= self.dim()) return std::nullopt;
  }
  return dims;
}

inline bool any_sharded(const at::Tensor& self, const Dims& dims) {
  const DTensorMeta* meta = meta_of(self);
  return meta != nullptr && std::any_of(dims.begin(), dims.end(), [&](int64_t d) { return is_sharded(*meta, d); });
}

}  // namespace sherd::detail
