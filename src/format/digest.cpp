#include <fmt/format.h>

#include <algorithm>

#include "format/digest_bodies.h"
#include "format/manifest.h"

namespace sherd::format {
namespace {

const DigestFunctions& functions() {
  static const DigestFunctions* const best = avx2_digest_functions() != nullptr ? avx2_digest_functions() : &kFunctions;
  return *best;
}

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) {
  uint64_t numbers[2];
  functions().whole(bytes.data(), bytes.size(), numbers);
  return {numbers[0], numbers[1]};
}

std::string to_string(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

struct BlockDigests::State {
  XXH3_state_t hash;

  void reset() { functions().reset(&hash); }
  Digest digest() const {
    uint64_t numbers[2];
    functions().finish(&hash, numbers);
    return {numbers[0], numbers[1]};
  }
};

BlockDigests::BlockDigests() : state_(std::make_unique<State>()) { state_->reset(); }
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
      functions().update(&state_->hash, part.data(), part.size());
      if (filled + static_cast<int64_t>(part.size()) == kBlock) {
        blocks_.push_back(state_->digest());
        state_->reset();
      }
    }
    length_ += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

std::vector<Digest> BlockDigests::finish() {
  if (length_ % kBlock != 0) blocks_.push_back(state_->digest());
  return std::move(blocks_);
}

}  // namespace sherd::format
