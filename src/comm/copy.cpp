#include "comm/copy.h"

#include <algorithm>
#include <cstring>
#include <thread>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sherd::detail {
namespace {

constexpr size_t kLine = 64;

// Shorter ones end before what is read ahead arrives, and their ends, which are written as usual, are much of them.
constexpr size_t kShortest = 16 * kLine;

#if defined(__SSE2__)

constexpr size_t kAhead = 64 * kLine;

using Part = __m128i;

void stream_part(Part* to, Part part) { _mm_stream_si128(to, part); }
void store_part(Part* to, Part part) { _mm_store_si128(to, part); }

// A line in four parts, which are all read before the first is written: so streamed ones leave the core as one. `to`
// stands at the beginning of a line.
template <void (*Store)(Part*, Part)>
void copy_line(std::byte* to, const std::byte* from) {
  const auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const Part*>(from) + i); };
  const Part a = load(0);
  const Part b = load(1);
  const Part c = load(2);
  const Part d = load(3);
  auto* parts = reinterpret_cast<Part*>(to);
  Store(parts, a);
  Store(parts + 1, b);
  Store(parts + 2, c);
  Store(parts + 3, d);
}

// `ask(at)` is called before the line at `at` is copied.
template <void (*Store)(Part*, Part), class Ask>
void copy_lines(std::byte* to, const std::byte* from, size_t bytes, Ask ask) {
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    ask(at);
    copy_line<Store>(to + at, from + at);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

void ask_to_read(const std::byte* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0); }

// To read and to write: the other cores give it up. Processors that do not know this do nothing.
void ask_to_own(const std::byte* line) { asm volatile("prefetchw %0" : : "m"(*line)); }

// `next`: what is read after this, for those lines that are read ahead.
void stream(std::byte* to, const std::byte* from, size_t bytes, const std::byte* next) {
  const size_t ahead = std::min(bytes, kAhead);
  copy_lines<stream_part>(to, from, bytes, [&](size_t at) {
    ask_to_read(at + ahead < bytes ? from + at + ahead : next + (at + ahead - bytes));
  });
}

// A core writes one line after the other, and each takes the way to another core and back unless it was asked for.
// Nothing is asked for behind the end: others may be at work there.
void copy_to_others(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t ahead = std::min(bytes, kAhead);
  for (size_t at = 0; at < ahead; at += kLine) ask_to_own(to + at);
  copy_lines<store_part>(to, from, bytes, [&](size_t at) {
    if (at + ahead >= bytes) return;
    ask_to_read(from + at + ahead);
    ask_to_own(to + at + ahead);
  });
}

// Such stores are not ordered with others.
void finish_streaming() { _mm_sfence(); }

#else

void stream(std::byte* to, const std::byte* from, size_t bytes, const std::byte*) { std::memcpy(to, from, bytes); }
void copy_to_others(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void finish_streaming() {}

#endif

template <size_t Run>
void copy_short(const RunCopy& copy) {
  std::byte* to = copy.to;
  const std::byte* from = copy.from;
  for (size_t i = 0; i < copy.count; ++i, to += copy.to_step, from += copy.from_step) std::memcpy(to, from, Run);
}

}  // namespace

// What a rank lays down is read by another core, where each rank has one of its own. To write lines that lie in another
// core's cache one by one took three times as long as to write memory, where that was measured; asked for ahead, they
// take less than memory as long as all fits into the caches. Ranks that share a core find some lines in its cache.
CopyTo best_for_others(int ranks, size_t bytes) {
  constexpr size_t kLeast = size_t{8} * 1024;
  static const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (bytes < kLeast || ranks > cores) return CopyTo::cache;
  return best_for(bytes) == CopyTo::memory ? CopyTo::memory : CopyTo::others;
}

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
  const bool long_enough = copy.run >= kShortest;
  const bool past_cache = where == CopyTo::memory && long_enough;
  const bool to_others = where == CopyTo::others && long_enough;
  std::byte* to = copy.to;
  const std::byte* from = copy.from;
  for (size_t i = 0; i < copy.count; ++i, to += copy.to_step, from += copy.from_step) {
    if (past_cache) {
      stream(to, from, copy.run, i + 1 < copy.count ? from + copy.from_step : from);
    } else if (to_others) {
      copy_to_others(to, from, copy.run);
    } else {
      std::memcpy(to, from, copy.run);
    }
  }
  if (past_cache) finish_streaming();
}

}  // namespace sherd::detail
