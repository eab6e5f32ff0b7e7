#include "comm/huge_pages.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace sherd::detail {

at::Tensor empty_large(at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty(sizes, options);
  if (!options.pinned_memory()) ask_for_huge_pages(tensor);  // those pages have their places
  return tensor;
}

void ask_for_huge_pages(const at::Tensor& tensor) {
#if defined(MADV_HUGEPAGE)
  constexpr size_t kLeast = size_t{4} << 20;
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || !tensor.has_storage() || tensor.nbytes() < kLeast) return;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + tensor.nbytes()) / kHugePage * kHugePage;
  if (begin == 0 || first >= last) return;
  const int error = errno;  // a kernel without huge pages says so here, and nobody asked
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  errno = error;
#endif
}

}  // namespace sherd::detail
