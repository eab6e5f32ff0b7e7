#pragma once
// Sixteen-bit floats in memory, worked on as 32-bit ones, for loops that are compiled once for every CPU and once for
// those with AVX2. As there, everything stands in an unnamed namespace.

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#else
#include <c10/util/Half.h>
#endif

namespace sherd::detail {
namespace {

struct Bfloat16 {
  using Stored = uint16_t;
  using Number = float;
  static void load(const uint16_t* from, float* to, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
      std::memcpy(&to[i], &bits, sizeof bits);
    }
  }
  // To the nearest, ties to even, as c10::BFloat16 does.
  static void store(const float* from, uint16_t* to, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &from[i], sizeof bits);
      const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
      to[i] = static_cast<uint16_t>(from[i] != from[i] ? 0x7fc0U : rounded);
    }
  }
};

struct Float16 {
  using Stored = uint16_t;
  using Number = float;
#ifdef __F16C__
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
#else
  static void load(const uint16_t* from, float* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = c10::Half(from[i], c10::Half::from_bits());
  }
  static void store(const float* from, uint16_t* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = c10::Half(from[i]).x;
  }
#endif
};

}  // namespace
}  // namespace sherd::detail
