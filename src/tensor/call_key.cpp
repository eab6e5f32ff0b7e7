#include "tensor/call_key.h"

namespace sherd::detail {

void add_strides(PlanKey& key, const c10::TensorImpl* impl) {
  if (impl->layout() != c10::kStrided) return;
  key.add(kNotContiguous);
  for (const int64_t n : impl->strides()) key.add(static_cast<uint64_t>(n));
}

void add_value(PlanKey& key, const c10::IValue& value) {
  if (value.isInt()) {
    key.add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    key.add(value.toBool() ? kTrue : kFalse);
  } else if (value.isIntList()) {
    const auto list = value.toIntList();
    key.add(kIntList + list.size());
    for (const int64_t n : list) key.add(static_cast<uint64_t>(n));
  } else if (value.isString()) {
    key.add(std::hash<std::string>()(value.toStringRef()));
  } else if (value.isBoolList()) {
    for (const bool flag : value.toBoolList()) key.add(flag ? kTrue : kFalse);
  } else if (value.isDevice()) {
    key.add(static_cast<uint64_t>(value.toDevice().type()));
  } else {
    key.add(kNothing);
  }
}

void add_tensor_list(PlanKey& key, const c10::IValue& value) {
  if (!value.isList()) {
    key.add(kNothing);
    return;
  }
  const auto list = value.toListRef();
  key.add(kTensorList + list.size());
  for (const c10::IValue& element : list) {
    if (element.isTensor()) {
      add_tensor(key, element.toTensor());
    } else {
      key.add(kNoTensor);
    }
  }
}

}  // namespace sherd::detail
