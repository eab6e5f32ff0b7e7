#include "random/loops.h"

#include "random/loop_bodies.h"

namespace sherd::detail {

const RandomLoops& plain_random_loops() { return kLoops; }

const RandomLoops& random_loops() {
  static const RandomLoops* const loops = avx2_random_loops() != nullptr ? avx2_random_loops() : &kLoops;
  return *loops;
}

}  // namespace sherd::detail
