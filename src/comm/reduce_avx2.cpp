// Compiled with -mavx2 -mf16c; see reduce_loops.h for what may be included here.
#include <immintrin.h>

#include "comm/reduce_loops.h"

namespace sherd::detail {
namespace {

struct Float16 {
  using Stored = uint16_t;
  using Number = float;
  static void load(const uint16_t* from, float* to, size_t n) {
    const size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
    for (size_t i = whole; i < n; ++i) to[i] = _cvtsh_ss(from[i]);
  }
  static void store(const float* from, uint16_t* to, size_t n) {
    const size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
      const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
    }
    if (whole == n) return;
    alignas(32) float rest[8] = {};  // NOLINT(modernize-avoid-c-arrays)
    std::memcpy(rest, from + whole, (n - whole) * sizeof(float));
    const __m128i half = _mm256_cvtps_ph(_mm256_load_ps(rest), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + whole, &half, (n - whole) * sizeof(uint16_t));
  }
};

}  // namespace

Loop avx2_loop(LoopType type, LoopOp op) {
  // Every CPU with AVX2 has F16C, which came before it.
  return __builtin_cpu_supports("avx2") != 0 ? find_loop<Float16>(type, op) : nullptr;
}

}  // namespace sherd::detail
