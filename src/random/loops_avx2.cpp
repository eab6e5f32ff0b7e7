// Compiled with -mavx2 -mfma -mf16c; see loop_bodies.h for what may be included here.
#include "random/loop_bodies.h"

namespace sherd::detail {

const RandomLoops* avx2_random_loops() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 ? &kLoops : nullptr;
}

}  // namespace sherd::detail
