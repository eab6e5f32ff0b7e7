#pragma once

#include "comm/observer.h"
#include "tensor/meta.h"

namespace sherd::detail {

/// The memory by which a tensor and its views are known to be one: of this rank's part where it is distributed.
inline const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  const at::Tensor& local = meta != nullptr ? meta->local : tensor;
  return local.defined() && local.has_storage() ? local.storage().unsafeGetStorageImpl() : nullptr;
}

/// Says that a cause is about a tensor, a parameter perhaps.
inline void about(Cause& cause, const at::Tensor& tensor) {
  if (const c10::StorageImpl* memory = memory_of(tensor)) cause.of.push_back(memory);
}

}  // namespace sherd::detail
