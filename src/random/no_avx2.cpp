#include "random/loops.h"

namespace sherd::detail {

const RandomLoops* avx2_random_loops() { return nullptr; }

}  // namespace sherd::detail
