#include "format/block_digests.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sherd::format {

struct BlockDigests::State {
  XXH3_state_t hash;
  int64_t filled = 0;  // bytes of the block that is under way
  std::vector<Digest> digests;

  void close_block() {
    const XXH128_hash_t value = XXH3_128bits_digest(&hash);
    digests.push_back({value.low64, value.high64});
    XXH3_128bits_reset(&hash);
    filled = 0;
  }
};

BlockDigests::BlockDigests() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
BlockDigests::~BlockDigests() = default;

void BlockDigests::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), static_cast<size_t>(kBlock - state_->filled)));
    XXH3_128bits_update(&state_->hash, part.data(), part.size());
    state_->filled += static_cast<int64_t>(part.size());
    if (state_->filled == kBlock) state_->close_block();
    bytes = bytes.subspan(part.size());
  }
}

std::vector<Digest> BlockDigests::finish() {
  if (state_->filled > 0) state_->close_block();
  return std::move(state_->digests);
}

}  // namespace sherd::format
