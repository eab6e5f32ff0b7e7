#include "comm/huge_pages.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

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
  // A result of 4 MiB that is cut unevenly has a little less on some ranks, and should be as fast there.
  constexpr size_t kLeast = size_t{2} << 20;
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || !tensor.has_storage() || tensor.nbytes() < kLeast) return;
  // All pages that hold a part of it: the kernel makes large ones of those that it may, and a block of malloc's own
  // begins with some bytes before the tensor.
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = begin / page * page;
  const uintptr_t last = (begin + tensor.nbytes() + page - 1) / page * page;
  if (begin == 0) return;
  const int error = errno;  // a kernel without huge pages says so here, and nobody asked
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  errno = error;
#endif
}

}  // namespace sherd::detail
