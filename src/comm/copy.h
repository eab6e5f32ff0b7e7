#pragma once
// Copies of large blocks of memory. What is written and not read soon need not pass through the caches: a copy there
// first reads every line that it is about to overwrite, which is a third of its traffic.

#include <cstddef>
#include <cstdint>

namespace sherd::detail {

/// Where copied bytes go.
enum class CopyTo : uint8_t {
  cache,   // as memcpy puts them: for what is read soon
  memory,  // past the caches: for blocks larger than they are
  others,  // as cache, for lines that other cores hold: the core asks for them before it has something to write there
};

/// The best for results of so many bytes in all.
inline CopyTo best_for(size_t bytes) {
  constexpr size_t kLarge = size_t{8} << 20;  // of which no core's own cache holds much
  return bytes >= kLarge ? CopyTo::memory : CopyTo::cache;
}

/// The same for results that are gathered from several ranks: they are new memory more often than not, of which the
/// caches hold nothing. What is reduced in place they hold.
inline CopyTo best_for_gathered(size_t bytes) {
  constexpr size_t kLarge = size_t{3} << 20;
  return bytes >= kLarge ? CopyTo::memory : CopyTo::cache;
}

/// The best for `bytes` that one of `ranks` lays down for the others, where all of them lay down some in turn.
CopyTo best_for_others(int ranks, size_t bytes);

/// `to` and `from` do not overlap. Whoever learns of the copy by an atomic with release order, say, sees its bytes.
void copy_bytes(void* to, const void* from, size_t bytes, CopyTo where = CopyTo::cache);

/// The same for `count` runs of `run` bytes each, whose beginnings are `to_step` and `from_step` bytes apart.
struct RunCopy {
  std::byte* to = nullptr;
  ptrdiff_t to_step = 0;
  const std::byte* from = nullptr;
  ptrdiff_t from_step = 0;
  size_t run = 0;
  size_t count = 0;
};
void copy_runs(const RunCopy& copy, CopyTo where = CopyTo::cache);

}  // namespace sherd::detail
