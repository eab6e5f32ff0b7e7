#include "random/loops.h"

#include "random/loop_bodies.h"

namespace sherd::detail {
namespace {

// The largest number with the 16 bits of a type that is below `to`: the nearest one, or the one before it.
template <class Sixteen>
double below_end(double to) {
  const auto number = static_cast<float>(to);
  uint16_t bits = 0;
  float rounded = 0;
  Sixteen::store(&number, &bits, 1);
  Sixteen::load(&bits, &rounded, 1);
  if (rounded < to) return rounded;
  constexpr uint16_t kSign = 0x8000;
  if ((bits & static_cast<uint16_t>(~kSign)) == 0) {
    bits = kSign | 1;  // below 0 of either sign
  } else {
    bits = static_cast<uint16_t>((bits & kSign) != 0 ? bits + 1 : bits - 1);
  }
  Sixteen::load(&bits, &rounded, 1);
  return rounded;
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
