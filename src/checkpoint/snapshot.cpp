#include "checkpoint/snapshot.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <set>

#include "comm/copy.h"

namespace sherd::detail {
namespace {

// What is kept for a writer of files need not push a program's own data out of the caches.
void copy_whole(const at::Tensor& to, const at::Tensor& from, CopyTo where) {
  constexpr int64_t kLeast = int64_t{1} << 20;  // for a thread
  auto* target = static_cast<std::byte*>(to.mutable_data_ptr());
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(from.nbytes()), kLeast, [&](int64_t begin, int64_t end) {
    copy_bytes(target + begin, source + begin, static_cast<size_t>(end - begin), where);
  });
}

}  // namespace

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
    // Not in huge pages: it is touched for the first time once, and a virtual machine may not have so much in one piece
    // at hand. The first snapshot took twice as long with them, later ones the same.
    memory.reset();  // before the next one is asked for
    memory = at::empty({total}, at::TensorOptions(c10::kByte).pinned_memory(pinned));
  }
  int64_t at = 0;
  for (at::Tensor* tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor->nbytes());
    at::Tensor copy = memory.narrow(0, at, bytes).view(tensor->scalar_type()).view(tensor->sizes());
    if (tensor->is_cpu() && tensor->is_contiguous() && !tensor->is_conj() && !tensor->is_neg()) {
      copy_whole(copy, *tensor, best_for(static_cast<size_t>(total)));
    } else {
      copy.copy_(*tensor, /*non_blocking=*/true);
    }
    *tensor = std::move(copy);
    at += aligned(bytes);
  }
  for (const c10::DeviceIndex index : gpus) {
    const c10::impl::VirtualGuardImpl device(gpu);
    device.synchronizeStream(device.getStream({gpu, index}));
  }
}

}  // namespace sherd::detail
