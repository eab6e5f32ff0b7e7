#pragma once
// The loops that fill plain memory with random numbers, compiled once for every CPU and once for those with AVX2. Both
// give the same bits.

#include <cstddef>
#include <cstdint>

#include "random/draw.h"

namespace sherd::detail {

enum class Stored : uint8_t { f32, f64, f16, bf16, u8, i8, i16, i32, i64, u16, u32, u64, truth };

struct Dropout {
  double p = 0;  // of zeroing an element
  uint64_t seed = 0;
  uint64_t offset = 0;
};

struct RandomLoops {
  /// Elements [first, first + count) of the global tensor.
  void (*fill)(const Draw& draw, Stored type, void* out, uint64_t first, size_t count);
  /// What is kept of `in`, times 1 / (1 - p); `mask`, where it is not null, says what was kept.
  void (*drop)(const Dropout& dropout, Stored type, const void* in, void* out, bool* mask, uint64_t first,
               size_t count);
};

/// The largest number of a type that is below `to`, or `from` where the range is empty: rounding must not reach its
/// end.
double uniform_limit(double from, double to, Stored type);

/// Those of this CPU.
const RandomLoops& random_loops();

/// Null where this CPU has no AVX2, or this build knows no such CPUs.
const RandomLoops* avx2_random_loops();
/// Those that run everywhere.
const RandomLoops& plain_random_loops();

}  // namespace sherd::detail
