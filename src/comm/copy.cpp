#include "comm/copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sherd::detail {
namespace {

constexpr size_t kLine = 64;

// Shorter ones end before what is read ahead arrives, and their ends, which are written as usual, are much of them.
constexpr size_t kShortest = 16 * kLine;

#if defined(__SSE2__)

constexpr size_t kAhead = 16 * kLine;

// A line is written in four parts, which leave the core as one. `to` stands at the beginning of a line.
void stream_line(std::byte* to, const std::byte* from) {
  const auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i); };
  const __m128i a = load(0);
  const __m128i b = load(1);
  const __m128i c = load(2);
  const __m128i d = load(3);
  const auto store = [&](int i, __m128i x) { _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, x); };
  store(0, a);
  store(1, b);
  store(2, c);
  store(3, d);
}

// `next`: what is read after this, for those lines that are read ahead.
void stream(std::byte* to, const std::byte* from, size_t bytes, const std::byte* next) {
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const std::byte* ahead = at + kAhead < bytes ? from + at + kAhead : next + (at + kAhead - bytes);
    _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
    stream_line(to + at, from + at);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

// Such stores are not ordered with others.
void finish_streaming() { _mm_sfence(); }

#else

void stream(std::byte* to, const std::byte* from, size_t bytes, const std::byte*) { std::memcpy(to, from, bytes); }
void finish_streaming() {}

#endif

template <size_t Run>
void copy_short(const RunCopy& copy) {
  std::byte* to = copy.to;
  const std::byte* from = copy.from;
  for (size_t i = 0; i < copy.count; ++i, to += copy.to_step, from += copy.from_step) std::memcpy(to, from, Run);
}

}  // namespace

void copy_bytes(void* to, const void* from, size_t bytes, CopyTo where) {
  copy_runs({.to = static_cast<std::byte*>(to), .from = static_cast<const std::byte*>(from), .run = bytes, .count = 1},
            where);
}

void copy_runs(const RunCopy& copy, CopyTo where) {
  switch (copy.run) {  // a call for each of these would take longer than the copy
    case 0:
      return;
    case 1:
      return copy_short<1>(copy);
    case 2:
      return copy_short<2>(copy);
    case 4:
      return copy_short<4>(copy);
    case 8:
      return copy_short<8>(copy);
    case 16:
      return copy_short<16>(copy);
    case 32:
      return copy_short<32>(copy);
    case 64:
      return copy_short<64>(copy);
    default:
      break;
  }
  const bool past_cache = where == CopyTo::memory && copy.run >= kShortest;
  std::byte* to = copy.to;
  const std::byte* from = copy.from;
  for (size_t i = 0; i < copy.count; ++i, to += copy.to_step, from += copy.from_step) {
    if (past_cache) {
      stream(to, from, copy.run, i + 1 < copy.count ? from + copy.from_step : from);
    } else {
      std::memcpy(to, from, copy.run);
    }
  }
  if (past_cache) finish_streaming();
}

}  // namespace sherd::detail
