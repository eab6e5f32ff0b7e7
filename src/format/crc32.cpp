// CRC-32 of zip (polynomial 0x04C11DB7, reflected). A checkpoint's every byte passes through it, so that it must not be
// slower than memory: with PCLMULQDQ four accumulators of 16 bytes are folded forward at a time (Gopal and others,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009); with AVX-512 sixteen of
// them; elsewhere by eight tables.

#include <array>
#include <cstring>

#include "format/archive.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sherd::format {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
  }
  return tables;
}
constexpr Tables kTables = make_tables();

uint32_t by_tables(uint32_t crc, const std::byte* at, size_t size) {
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    eight ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][eight >> 8 * i & 0xFF];
  }
  for (; size > 0; --size, ++at) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
#define SHERD_PCLMUL __attribute__((target("pclmul,sse4.1")))

SHERD_PCLMUL inline __m128i fold(__m128i sum, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// `size` is a multiple of 16, at least 64.
SHERD_PCLMUL uint32_t by_folding(uint32_t crc, const std::byte* at, size_t size) {
  const auto load = [](const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  // x^n modulo the polynomial for the distances over which sums are moved.
  const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);

  __m128i a = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load(at + 16);
  __m128i c = load(at + 32);
  __m128i d = load(at + 48);
  for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
    a = fold(a, by_64, load(at));
    b = fold(b, by_64, load(at + 16));
    c = fold(c, by_64, load(at + 32));
    d = fold(d, by_64, load(at + 48));
  }
  a = fold(a, by_16, b);
  a = fold(a, by_16, c);
  a = fold(a, by_16, d);
  for (; size >= 16; at += 16, size -= 16) a = fold(a, by_16, load(at));

  // From 128 bits to 64, and by Barrett's reduction to 32.
  const __m128i low_32 = _mm_setr_epi32(~0, 0, ~0, 0);
  a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
  a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_32), by_8, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low_32), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(a, quotient), 1));
}

#define SHERD_VPCLMUL __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))

SHERD_VPCLMUL inline __m512i fold(__m512i sum, __m512i constants, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(sum, constants, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(sum, constants, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the sum of all three
}

/// 16 bytes, four times. (Not _mm512_broadcast_i32x4: GCC 12 takes its own header's for uninitialised.)
SHERD_VPCLMUL inline __m512i four_times(int64_t high, int64_t low) {
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

// The same with four times the width: what comes before the last 64 bytes is folded onto them, and their sum goes on
// from there. `size` is a multiple of 256, at least 256.
SHERD_VPCLMUL uint32_t by_wide_folding(uint32_t crc, const std::byte* at, size_t size) {
  const __m512i by_256 = four_times(0x01322d1430, 0x011542778a);
  const __m512i by_64 = four_times(0x01c6e41596, 0x0154442bd4);
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, crc));
  __m512i b = _mm512_loadu_si512(at + 64);
  __m512i c = _mm512_loadu_si512(at + 128);
  __m512i d = _mm512_loadu_si512(at + 192);
  for (at += 256, size -= 256; size >= 256; at += 256, size -= 256) {
    a = fold(a, by_256, _mm512_loadu_si512(at));
    b = fold(b, by_256, _mm512_loadu_si512(at + 64));
    c = fold(c, by_256, _mm512_loadu_si512(at + 128));
    d = fold(d, by_256, _mm512_loadu_si512(at + 192));
  }
  std::byte last[64];
  _mm512_storeu_si512(last, fold(fold(fold(a, by_64, b), by_64, c), by_64, d));
  return by_folding(0, last, sizeof(last));
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return can;
}
bool can_fold_widely() {
  static const bool can =
      can_fold() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return can;
}
#else
uint32_t by_folding(uint32_t crc, const std::byte* at, size_t size) { return by_tables(crc, at, size); }
uint32_t by_wide_folding(uint32_t crc, const std::byte* at, size_t size) { return by_tables(crc, at, size); }
bool can_fold() { return false; }
bool can_fold_widely() { return false; }
#endif

/// a * b modulo the polynomial, reflected: the bit of x^0 is the highest.
uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? 0xEDB88320U : 0);
  }
  return sum;
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  const std::byte* at = bytes.data();
  size_t size = bytes.size();
  const auto all_but = [&](size_t multiple, auto sum) {
    const size_t part = size / multiple * multiple;
    crc = sum(crc, at, part);
    at += part;
    size -= part;
  };
  if (size >= 1024 && can_fold_widely()) all_but(256, by_wide_folding);
  if (size >= 64 && can_fold()) all_but(16, by_folding);
  return ~by_tables(crc, at, size);
}

uint32_t crc32_of_both(uint32_t first, uint32_t rest, int64_t rest_size) {
  // The first part's sum is moved by x^(8 * rest_size): square and multiply.
  uint32_t power = 0x00800000U;  // x^8
  for (auto size = static_cast<uint64_t>(rest_size); size != 0; size >>= 1) {
    if ((size & 1) != 0) first = product(power, first);
    power = product(power, power);
  }
  return first ^ rest;
}

}  // namespace sherd::format
