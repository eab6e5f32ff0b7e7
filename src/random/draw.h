#pragma once
// What is drawn: a distribution, its parameters, and which draw of which seed.

#include <cstdint>

namespace sherd::detail {

enum class Distribution : uint8_t {
  uniform,      // [a, b)
  normal,       // mean a, deviation b
  log_normal,   // of the normal number
  exponential,  // rate a
  cauchy,       // median a, scale b
  geometric,    // trials up to the first success, which has probability a
  integers,     // [low, low + range)
  bernoulli,    // 1 with probability a, otherwise 0
};

/// Element i of the global tensor takes words [i * w, (i + 1) * w) of the draw (philox.h), where w is 1, or 2 where
/// numbers are made in 64 bits: for float64, for integers, and for the distributions that only float64 does well.
struct Draw {
  Distribution distribution = Distribution::uniform;
  double a = 0;
  double b = 1;
  double limit = 1;  // uniform: the largest number of the tensor's dtype below b (uniform_limit)
  int64_t low = 0;
  uint64_t range = 0;  // 0: 2^64
  uint64_t seed = 0;
  uint64_t offset = 0;
};

}  // namespace sherd::detail
