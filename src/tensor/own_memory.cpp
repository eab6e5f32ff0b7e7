#include "tensor/own_memory.h"

#include <ATen/ops/zeros.h>

#include "comm/call.h"
#include "comm/errors.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

// Other devices may keep their elements where torch sees no storage.
bool has_storage_of_torch(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.is_cuda(); }

bool has_memory(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || tensor.is_meta() || has_meta(tensor.unsafeGetTensorImpl())) return true;
  if (tensor.key_set().has_any(c10::python_ks) || tensor._is_zerotensor()) return false;
  if (!has_storage_of_torch(tensor)) return true;
  return tensor.has_storage() &&
         tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

}  // namespace

void require_memory(const char* operation, const at::Tensor& tensor) {
  if (has_memory(tensor)) return;
  throw_value_error(ErrorText(operation, "the tensor has no memory of its own")
                        .fact("tensor", dtype_name(tensor.scalar_type()) + sherd::to_string(tensor.sizes().vec()))
                        .help("sherd.from_torch(tensor) where it is a DTensor of torch.distributed; of a subclass in "
                              "Python, the tensors that it wraps"));
}

at::Tensor with_zeros(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor._is_zerotensor()) return tensor;
  return at::zeros(tensor.sizes(), tensor.options());
}

}  // namespace sherd::detail
