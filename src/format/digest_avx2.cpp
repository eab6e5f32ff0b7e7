#include "format/digest_bodies.h"

namespace sherd::format {

const DigestFunctions* avx2_digest_functions() { return __builtin_cpu_supports("avx2") != 0 ? &kFunctions : nullptr; }

}  // namespace sherd::format
