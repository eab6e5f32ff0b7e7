// Compiled with -mavx2 -mf16c; see reduce_loops.h for what may be included here.
#include "comm/reduce_loops.h"

namespace sherd::detail {
Loop avx2_loop(LoopType type, LoopOp op) {
  // Every CPU with AVX2 has F16C, which came before it.
  return __builtin_cpu_supports("avx2") != 0 ? find_loop(type, op) : nullptr;
}

}  // namespace sherd::detail
