#include "random/loops.h"

#include "random/loop_bodies.h"

namespace sherd::detail {
namespace {

// The largest number with the 16 bits of a type that is below `to`.
template <class Sixteen>
double below_end(double to) {
  for (auto number = static_cast<float>(to);; number = nextafterf(number, -INFINITY)) {
    uint16_t stored = 0;
    float rounded = 0;
    Sixteen::store(&number, &stored, 1);
    Sixteen::load(&stored, &rounded, 1);
    if (rounded < to || std::isinf(rounded)) return rounded;
  }
}

}  // namespace

double uniform_limit(double from, double to, Stored type) {
  if (!(from < to)) return from;
  switch (type) {
    case Stored::f16:
      return below_end<Float16>(to);
    case Stored::bf16:
      return below_end<Bfloat16>(to);
    case Stored::f32: {
      const auto end = static_cast<float>(to);
      return end < to ? end : nextafterf(end, -INFINITY);
    }
    default:
      return nextafter(to, -INFINITY);
  }
}

const RandomLoops& plain_random_loops() { return kLoops; }

const RandomLoops& random_loops() {
  static const RandomLoops* const loops = avx2_random_loops() != nullptr ? avx2_random_loops() : &kLoops;
  return *loops;
}

}  // namespace sherd::detail
