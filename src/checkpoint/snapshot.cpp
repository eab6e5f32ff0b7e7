#include "checkpoint/snapshot.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <set>

namespace sherd::detail {

void copy_into(at::Tensor& memory, const std::vector<at::Tensor*>& tensors) {
  constexpr int64_t kAlignment = 64;
  const auto aligned = [](int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  int64_t total = 0;
  std::set<c10::DeviceIndex> gpus;
  c10::DeviceType gpu = c10::kCPU;
  for (const at::Tensor* tensor : tensors) {
    total += aligned(static_cast<int64_t>(tensor->nbytes()));
    if (tensor->is_cpu()) continue;
    gpu = tensor->device().type();
    gpus.insert(tensor->device().index());
  }
  const bool pinned = !gpus.empty();
  if (!memory.defined() || memory.numel() < total || (pinned && !memory.is_pinned())) {
    memory = at::empty({total}, at::TensorOptions(c10::kByte).pinned_memory(pinned));
  }
  int64_t at = 0;
  for (at::Tensor* tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor->nbytes());
    at::Tensor copy = memory.narrow(0, at, bytes).view(tensor->scalar_type()).view(tensor->sizes());
    copy.copy_(*tensor, /*non_blocking=*/true);
    *tensor = std::move(copy);
    at += aligned(bytes);
  }
  for (const c10::DeviceIndex index : gpus) {
    const c10::impl::VirtualGuardImpl device(gpu);
    device.synchronizeStream(device.getStream({gpu, index}));
  }
}

}  // namespace sherd::detail
