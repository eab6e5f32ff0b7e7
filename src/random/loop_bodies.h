#pragma once
// The bodies of loops.h. Only what stands in an unnamed namespace may be instantiated from here: the linker must not
// give one compilation's code to the other.

#include <type_traits>

#include "comm/float16.h"
#include "random/loops.h"
#include "random/makers.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace sherd::detail {
namespace {

constexpr size_t kBlocks = 64;  // at a time: their words and numbers stay in the first cache
constexpr size_t kWords = kBlocks * 4;

size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// NOLINTBEGIN(modernize-avoid-c-arrays): scratch of a fixed size

#ifdef __AVX2__

// Four blocks, a word of each in the low half of a 64-bit lane. What gathers in the high halves is never read: a
// product takes the low ones.
struct FourBlocks {
  __m256i a, b, c, d;

  void round(__m256i key, __m256i other_key) {
    const __m256i left = _mm256_mul_epu32(a, _mm256_set1_epi64x(0xD2511F53));
    const __m256i right = _mm256_mul_epu32(c, _mm256_set1_epi64x(0xCD9E8D57));
    a = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(right, 32), b), key);
    b = right;
    c = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(left, 32), d), other_key);
    d = left;
  }

  void store(uint32_t* words) const {
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    const __m256i ab = _mm256_or_si256(_mm256_and_si256(a, low), _mm256_slli_epi64(b, 32));
    const __m256i cd = _mm256_or_si256(_mm256_and_si256(c, low), _mm256_slli_epi64(d, 32));
    const __m256i even = _mm256_unpacklo_epi64(ab, cd);
    const __m256i odd = _mm256_unpackhi_epi64(ab, cd);
    auto* out = reinterpret_cast<__m256i*>(words);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

// The words of at least `count` blocks; up to 12 blocks more are written. Three times four at once hide the time that
// a product takes.
void words_of(uint64_t seed, uint64_t offset, uint64_t block, size_t count, uint32_t* words) {
  const auto all = [](uint64_t n) { return _mm256_set1_epi64x(static_cast<int64_t>(n)); };
  __m256i counter = _mm256_add_epi64(all(block), _mm256_setr_epi64x(0, 1, 2, 3));
  const auto next = [&] {
    const FourBlocks blocks{counter, _mm256_srli_epi64(counter, 32), all(offset & 0xffffffff), all(offset >> 32)};
    counter = _mm256_add_epi64(counter, all(4));
    return blocks;
  };
  for (size_t i = 0; i < count; i += 12, words += 48) {
    FourBlocks x = next();
    FourBlocks y = next();
    FourBlocks z = next();
    auto key = static_cast<uint32_t>(seed);
    auto other_key = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      x.round(all(key), all(other_key));
      y.round(all(key), all(other_key));
      z.round(all(key), all(other_key));
      key += 0x9E3779B9;
      other_key += 0xBB67AE85;
    }
    x.store(words);
    y.store(words + 16);
    z.store(words + 32);
  }
}

#else

void words_of(uint64_t seed, uint64_t offset, uint64_t block, size_t count, uint32_t* words) {
  for (size_t i = 0; i < count; ++i) {
    const PhiloxBlock made = philox(seed, offset, block + i);
    std::memcpy(words + 4 * i, made.words, sizeof made.words);
  }
}

#endif

// How numbers stand in memory: as what they are stored, which real numbers are made for them, and of how many bits.
template <class T>
struct Same {
  using Stored = T;
  using Real = std::conditional_t<std::is_floating_point_v<T>, T, void>;
  static constexpr int kBits = 24;
  template <class Number>
  static void store(const Number* from, T* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }
  static void load(const T* from, T* to, size_t n) { std::memcpy(to, from, n * sizeof(T)); }
};

struct Truth {
  using Stored = uint8_t;
  using Real = void;
  static constexpr int kBits = 0;
  template <class Number>
  static void store(const Number* from, uint8_t* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = from[i] != 0 ? 1 : 0;
  }
};

// Float16 and Bfloat16 from any number.
template <class Sixteen, int Bits>
struct Rounded {
  using Stored = uint16_t;
  using Real = float;
  static constexpr int kBits = Bits;
  template <class Number>
  static void store(const Number* from, uint16_t* to, size_t n) {
    if constexpr (std::is_same_v<Number, float>) {
      Sixteen::store(from, to, n);
    } else {
      alignas(32) float numbers[kWords];
      for (size_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(from[i]);
      Sixteen::store(numbers, to, n);
    }
  }
  static void load(const uint16_t* from, float* to, size_t n) { Sixteen::load(from, to, n); }
};

template <class Type, class Make>
void fill_with(const Make& make, const Draw& draw, void* out, uint64_t first, size_t count) {
  using Number = typename Make::Number;
  constexpr size_t kGroup = Make::kGroup;
  constexpr size_t kEach = 4 / Make::kWords;  // numbers of a block
  alignas(64) uint32_t words[kWords + 48];
  alignas(64) Number numbers[kWords];
  auto* to = static_cast<typename Type::Stored*>(out);
  while (count > 0) {
    const size_t skip = first % kEach;
    const size_t blocks = smaller(kBlocks, (skip + count + kEach - 1) / kEach);
    const size_t n = smaller(count, blocks * kEach - skip);
    words_of(draw.seed, draw.offset, first / kEach, blocks, words);
    for (size_t i = 0; i < blocks * kEach; i += kGroup) make(words + i * Make::kWords, numbers + i);
    Type::store(numbers + skip, to, n);
    to += n;
    first += n;
    count -= n;
  }
}

template <class Type>
void fill_type(const Draw& draw, void* out, uint64_t first, size_t count) {
  with_maker<typename Type::Real>(draw, Type::kBits,
                                  [&](const auto& make) { fill_with<Type>(make, draw, out, first, count); });
}

void fill_stored(const Draw& draw, Stored type, void* out, uint64_t first, size_t count) {
  switch (type) {
    case Stored::f32:
      return fill_type<Same<float>>(draw, out, first, count);
    case Stored::f64:
      return fill_type<Same<double>>(draw, out, first, count);
    case Stored::f16:
      return fill_type<Rounded<Float16, 11>>(draw, out, first, count);
    case Stored::bf16:
      return fill_type<Rounded<Bfloat16, 8>>(draw, out, first, count);
    case Stored::u8:
      return fill_type<Same<uint8_t>>(draw, out, first, count);
    case Stored::i8:
      return fill_type<Same<int8_t>>(draw, out, first, count);
    case Stored::i16:
      return fill_type<Same<int16_t>>(draw, out, first, count);
    case Stored::i32:
      return fill_type<Same<int32_t>>(draw, out, first, count);
    case Stored::i64:
      return fill_type<Same<int64_t>>(draw, out, first, count);
    case Stored::u16:
      return fill_type<Same<uint16_t>>(draw, out, first, count);
    case Stored::u32:
      return fill_type<Same<uint32_t>>(draw, out, first, count);
    case Stored::u64:
      return fill_type<Same<uint64_t>>(draw, out, first, count);
    case Stored::truth:
      return fill_type<Truth>(draw, out, first, count);
  }
}

float kept(float number, uint32_t mask) { return same_bits<float>(same_bits<uint32_t>(number) & mask); }
double kept(double number, uint32_t mask) {
  return same_bits<double>(same_bits<int64_t>(number) & static_cast<int64_t>(static_cast<int32_t>(mask)));
}

template <class Type, class Number>
void drop_type(const Dropout& dropout, const void* in, void* out, bool* mask, uint64_t first, size_t count) {
  using Stored = typename Type::Stored;
  const uint64_t limit = threshold(1 - dropout.p);
  const auto last = static_cast<uint32_t>(limit - 1);
  const auto scale = static_cast<Number>(dropout.p < 1 ? 1 / (1 - dropout.p) : 0);
  alignas(64) uint32_t words[kWords + 48];
  alignas(64) Number numbers[kWords];
  const auto* from = static_cast<const Stored*>(in);
  auto* to = static_cast<Stored*>(out);
  while (count > 0) {
    const size_t skip = first % 4;
    const size_t blocks = smaller(kBlocks, (skip + count + 3) / 4);
    const size_t n = smaller(count, blocks * 4 - skip);
    words_of(dropout.seed, dropout.offset, first / 4, blocks, words);
    const uint32_t* own = words + skip;
    Type::load(from, numbers, n);
    if (limit == 0) {
      std::memset(numbers, 0, n * sizeof(Number));
      if (mask != nullptr) std::memset(mask, 0, n);
    } else {
      for (size_t i = 0; i < n; ++i) numbers[i] = kept(numbers[i] * scale, mask_up_to(last, own[i]));
      if (mask != nullptr) {
        for (size_t i = 0; i < n; ++i) mask[i] = (mask_up_to(last, own[i]) & 1) != 0;
      }
    }
    if (mask != nullptr) mask += n;
    Type::store(numbers, to, n);
    from += n;
    to += n;
    first += n;
    count -= n;
  }
}

void drop_stored(const Dropout& dropout, Stored type, const void* in, void* out, bool* mask, uint64_t first,
                 size_t count) {
  switch (type) {
    case Stored::f32:
      return drop_type<Same<float>, float>(dropout, in, out, mask, first, count);
    case Stored::f64:
      return drop_type<Same<double>, double>(dropout, in, out, mask, first, count);
    case Stored::f16:
      return drop_type<Rounded<Float16, 11>, float>(dropout, in, out, mask, first, count);
    case Stored::bf16:
      return drop_type<Rounded<Bfloat16, 8>, float>(dropout, in, out, mask, first, count);
    default:
      return;  // floating point alone: refused before
  }
}

// NOLINTEND(modernize-avoid-c-arrays)

constexpr RandomLoops kLoops = {fill_stored, drop_stored};

}  // namespace
}  // namespace sherd::detail
