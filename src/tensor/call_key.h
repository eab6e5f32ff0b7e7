#pragma once
// The key under which a call's plan is kept, built from boxed or from typed arguments: both add the same words.

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <string_view>

#include "tensor/meta.h"
#include "tensor/plan_cache.h"

namespace sherd::detail {

inline constexpr uint64_t kNoTensor = 1;
inline constexpr uint64_t kFalse = 2;
inline constexpr uint64_t kTrue = 3;
inline constexpr uint64_t kInBoxes = 5;
inline constexpr uint64_t kTensorList = uint64_t{1} << 60;
inline constexpr uint64_t kIntList = uint64_t{1} << 61;
inline constexpr uint64_t kPlainTensor = uint64_t{1} << 62;
inline constexpr uint64_t kNotContiguous = uint64_t{1} << 32;
// For an argument that is left out, which may be a number, a dtype or a list: no number that a program would pass.
inline constexpr uint64_t kNothing = 0xB5C0FBCFEC4D3B2FULL;

// A dtype decides as a shape does: an index of booleans picks, one of integers names. Addresses leave their highest
// bits free for it.
inline uint64_t dtype_bits(const c10::TensorImpl* impl) {
  return static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype())) << 52;
}

// How a plain tensor lies in memory, where it is not row-major: its dims and strides.
void add_strides(PlanKey& key, const c10::TensorImpl* impl);

// Plain tensors count as replicated; what matters of them is their dtype and shape, and the order of dims in memory,
// which results take from them.
inline void add_tensor(PlanKey& key, const c10::TensorImpl* impl, const DTensorMeta* meta) {
  if (meta != nullptr) {
    key.add(reinterpret_cast<uint64_t>(meta->spec.get()) | dtype_bits(impl));
    return;
  }
  if (impl == c10::UndefinedTensorImpl::singleton()) {
    key.add(kNoTensor);
    return;
  }
  if (has_meta(impl)) {  // no call with such a tensor has a plan
    key.add(kInBoxes);
    return;
  }
  key.add((kPlainTensor | dtype_bits(impl)) + static_cast<uint64_t>(impl->dim()));
  for (const int64_t n : impl->sizes()) key.add(static_cast<uint64_t>(n));
  if (!impl->is_contiguous()) add_strides(key, impl);
}

inline void add_tensor(PlanKey& key, const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  add_tensor(key, impl, meta_of(impl));
}

// Boxed arguments.
void add_value(PlanKey& key, const c10::IValue& value);
void add_tensor_list(PlanKey& key, const c10::IValue& value);

// Typed arguments other than tensors. Numbers that change from call to call do not decide how an operator is sharded.
inline void add_plain(PlanKey&, const at::Scalar&) {}
inline void add_plain(PlanKey&, double) {}
inline void add_plain(PlanKey&, const std::optional<at::Scalar>&) {}
inline void add_plain(PlanKey&, const std::optional<double>&) {}
inline void add_plain(PlanKey& key, int64_t value) { key.add(static_cast<uint64_t>(value)); }
inline void add_plain(PlanKey& key, const c10::SymInt& value) { key.add(static_cast<uint64_t>(value.expect_int())); }
inline void add_plain(PlanKey& key, bool value) { key.add(value ? kTrue : kFalse); }
inline void add_plain(PlanKey& key, c10::ScalarType value) { key.add(static_cast<uint64_t>(value)); }
inline void add_plain(PlanKey& key, c10::MemoryFormat value) { key.add(static_cast<uint64_t>(value)); }
inline void add_plain(PlanKey& key, c10::Layout value) { key.add(static_cast<uint64_t>(value)); }
inline void add_plain(PlanKey& key, c10::Device value) { key.add(static_cast<uint64_t>(value.type())); }
inline void add_plain(PlanKey& key, std::string_view value) { key.add(std::hash<std::string_view>()(value)); }
inline void add_plain(PlanKey& key, c10::SymIntArrayRef list) {
  key.add(kIntList + list.size());
  for (const c10::SymInt& n : list) key.add(static_cast<uint64_t>(n.expect_int()));
}
inline void add_plain(PlanKey& key, at::IntArrayRef list) {
  key.add(kIntList + list.size());
  for (const int64_t n : list) key.add(static_cast<uint64_t>(n));
}
inline void add_plain(PlanKey& key, const at::OptionalIntArrayRef& list) {
  if (list.has_value()) {
    add_plain(key, *list);
  } else {
    key.add(kNothing);
  }
}
template <size_t N>
void add_plain(PlanKey& key, const std::array<bool, N>& flags) {
  for (const bool flag : flags) add_plain(key, flag);
}
template <class T>
void add_plain(PlanKey& key, const std::optional<T>& value) {
  if (value.has_value()) {
    add_plain(key, *value);
  } else {
    key.add(kNothing);
  }
}

}  // namespace sherd::detail
