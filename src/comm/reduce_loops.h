#pragma once
// The loops of reduce.h, compiled once for every CPU and once for those with AVX2. Only what stands in an unnamed
// namespace may be instantiated from here: the linker must not give one compilation's code to the other.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/float16.h"

namespace sherd::detail {

enum class LoopType : uint8_t { f32, f64, f16, bf16, i8, u8, i16, i32, i64, count };
enum class LoopOp : uint8_t { sum, average, product, min, max, band, bor, bxor, count };

using Loop = void (*)(void* out, const void* const* parts, size_t ranks, size_t count);

namespace {

constexpr size_t kBlock = 1024;  // elements; the accumulator stays in the first cache

// What stands in memory (Stored) and what is added (Number).
template <class T>
struct Plain {
  using Stored = T;
  using Number = T;
  static void load(const T* from, T* to, size_t n) { std::memcpy(to, from, n * sizeof(T)); }
  static void store(const T* from, T* to, size_t n) { std::memcpy(to, from, n * sizeof(T)); }
};

// Combining wraps around for integers, as in torch: the sum is taken without a sign.
template <class T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<int8_t> {
  using Type = uint8_t;
};
template <>
struct Unsigned<int16_t> {
  using Type = uint32_t;  // products of 16 bits would become int, and overflow
};
template <>
struct Unsigned<int32_t> {
  using Type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using Type = uint64_t;
};

template <LoopOp Op, class T>
T combined(T a, T b) {
  using U = typename Unsigned<T>::Type;
  if constexpr (Op == LoopOp::sum || Op == LoopOp::average)
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  if constexpr (Op == LoopOp::product) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  if constexpr (Op == LoopOp::min) return a < b || a != a ? a : b;  // one that is not a number stays
  if constexpr (Op == LoopOp::max) return a > b || a != a ? a : b;
  if constexpr (Op == LoopOp::band) return static_cast<T>(a & b);
  if constexpr (Op == LoopOp::bor) return static_cast<T>(a | b);
  if constexpr (Op == LoopOp::bxor) return static_cast<T>(a ^ b);
}

template <class Lane, LoopOp Op>
void reduce_block(typename Lane::Stored* out, const void* const* parts, size_t ranks, size_t at, size_t n) {
  using Stored = typename Lane::Stored;
  using Number = typename Lane::Number;
  alignas(64) Number sum[kBlock];   // NOLINT(modernize-avoid-c-arrays)
  alignas(64) Number part[kBlock];  // NOLINT(modernize-avoid-c-arrays)
  Lane::load(static_cast<const Stored*>(parts[0]) + at, sum, n);
  for (size_t r = 1; r < ranks; ++r) {
    const auto* from = static_cast<const Stored*>(parts[r]) + at;
    if constexpr (sizeof(Stored) == sizeof(Number)) {
      for (size_t i = 0; i < n; ++i) sum[i] = combined<Op>(sum[i], static_cast<Number>(from[i]));
    } else {
      Lane::load(from, part, n);
      for (size_t i = 0; i < n; ++i) sum[i] = combined<Op>(sum[i], part[i]);
    }
  }
  if constexpr (Op == LoopOp::average) {
    for (size_t i = 0; i < n; ++i) sum[i] = sum[i] / static_cast<Number>(ranks);
  }
  Lane::store(sum, out + at, n);
}

template <class Lane, LoopOp Op>
void reduce_all(void* out, const void* const* parts, size_t ranks, size_t count) {
  auto* to = static_cast<typename Lane::Stored*>(out);
  size_t at = 0;
  for (; at + kBlock <= count; at += kBlock) reduce_block<Lane, Op>(to, parts, ranks, at, kBlock);
  if (at < count) reduce_block<Lane, Op>(to, parts, ranks, at, count - at);
}

template <class Lane>
Loop float_loop(LoopOp op) {
  switch (op) {
    case LoopOp::sum:
      return reduce_all<Lane, LoopOp::sum>;
    case LoopOp::average:
      return reduce_all<Lane, LoopOp::average>;
    case LoopOp::product:
      return reduce_all<Lane, LoopOp::product>;
    case LoopOp::min:
      return reduce_all<Lane, LoopOp::min>;
    case LoopOp::max:
      return reduce_all<Lane, LoopOp::max>;
    default:
      return nullptr;
  }
}

template <class T>
Loop integer_loop(LoopOp op) {
  using Lane = Plain<T>;
  switch (op) {
    case LoopOp::sum:
      return reduce_all<Lane, LoopOp::sum>;
    case LoopOp::product:
      return reduce_all<Lane, LoopOp::product>;
    case LoopOp::min:
      return reduce_all<Lane, LoopOp::min>;
    case LoopOp::max:
      return reduce_all<Lane, LoopOp::max>;
    case LoopOp::band:
      return reduce_all<Lane, LoopOp::band>;
    case LoopOp::bor:
      return reduce_all<Lane, LoopOp::bor>;
    case LoopOp::bxor:
      return reduce_all<Lane, LoopOp::bxor>;
    default:
      return nullptr;
  }
}

inline Loop find_loop(LoopType type, LoopOp op) {
  switch (type) {
    case LoopType::f32:
      return float_loop<Plain<float>>(op);
    case LoopType::f64:
      return float_loop<Plain<double>>(op);
    case LoopType::f16:
      return float_loop<Float16>(op);
    case LoopType::bf16:
      return float_loop<Bfloat16>(op);
    case LoopType::i8:
      return integer_loop<int8_t>(op);
    case LoopType::u8:
      return integer_loop<uint8_t>(op);
    case LoopType::i16:
      return integer_loop<int16_t>(op);
    case LoopType::i32:
      return integer_loop<int32_t>(op);
    case LoopType::i64:
      return integer_loop<int64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace

/// The loop for CPUs with AVX2 and F16C; null where this CPU has them not, or this build knows no such CPUs.
Loop avx2_loop(LoopType type, LoopOp op);

}  // namespace sherd::detail
