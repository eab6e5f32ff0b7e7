#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "format/manifest.h"

namespace sherd::format {
namespace {

Digest digest_from(const XXH128_hash_t& hash) { return {hash.low64, hash.high64}; }

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) { return digest_from(XXH3_128bits(bytes.data(), bytes.size())); }

std::string to_string(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

struct BlockDigests::State {
  XXH3_state_t hash;
};

BlockDigests::BlockDigests() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
BlockDigests::~BlockDigests() = default;
BlockDigests::BlockDigests(BlockDigests&&) noexcept = default;
BlockDigests& BlockDigests::operator=(BlockDigests&&) noexcept = default;

void BlockDigests::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t filled = length_ % kBlock;
    const auto part = bytes.first(std::min(bytes.size(), static_cast<size_t>(kBlock - filled)));
    if (part.size() == kBlock) {
      blocks_.push_back(digest_of(part));  // a whole one needs no state
    } else {
      XXH3_128bits_update(&state_->hash, part.data(), part.size());
      if (filled + static_cast<int64_t>(part.size()) == kBlock) {
        blocks_.push_back(digest_from(XXH3_128bits_digest(&state_->hash)));
        XXH3_128bits_reset(&state_->hash);
      }
    }
    length_ += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

std::vector<Digest> BlockDigests::finish() {
  if (length_ % kBlock != 0) blocks_.push_back(digest_from(XXH3_128bits_digest(&state_->hash)));
  return std::move(blocks_);
}

}  // namespace sherd::format
