#include "roomy_heap.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>  // which says what the C library is

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace sherd::tools {

#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)

void make_heap_roomy() {
  constexpr int kRoom = 64 << 20;
  constexpr int kMostInHeap = 32 << 20;  // the most that the C library takes; what is larger is mapped for itself
  constexpr std::ptrdiff_t kPage = std::ptrdiff_t{2} << 20;
  auto* const begin = static_cast<char*>(sbrk(0));
  if (mallopt(M_TOP_PAD, kRoom) == 0 || mallopt(M_MMAP_THRESHOLD, kMostInHeap) == 0 ||
      mallopt(M_TRIM_THRESHOLD, 2 * kRoom) == 0) {
    return;
  }
  // The heap that the program began with is used up first, and then there is one that ends `kRoom` further on.
  void* volatile grown = std::malloc(size_t{1} << 20);  // volatile, or the compiler leaves both calls out
  std::free(grown);
  char* const first = begin + (kPage - static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(begin) % kPage)) % kPage;
  const std::ptrdiff_t size = (static_cast<char*>(sbrk(0)) - first) / kPage * kPage;
  if (size > 0) madvise(first, static_cast<size_t>(size), MADV_HUGEPAGE);
  mallopt(M_TOP_PAD, 1 << 20);  // further room in small steps: most have enough now
}

#else

void make_heap_roomy() {}

#endif

}  // namespace sherd::tools
