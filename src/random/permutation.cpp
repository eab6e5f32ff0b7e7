#include "random/permutation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "random/numbers.h"

namespace sherd::detail {
namespace {

// Up to here rows are sorted by random keys: every permutation is equally likely. Beyond, a cipher makes each row
// alone.
constexpr uint64_t kSmall = 1024;
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t offset) : n_(n), seed_(seed), offset_(offset) {
  if (n > kSmall) {
    left_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n))) + 1;
    right_ = (n + left_ - 1) / left_;
    return;
  }
  rows_.resize(n);
  std::iota(rows_.begin(), rows_.end(), 0);
  std::vector<uint64_t> keys;
  keys.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const PhiloxBlock block = philox(seed, offset, i);
    keys.push_back(join(block.words[0], block.words[1]));
  }
  std::stable_sort(rows_.begin(), rows_.end(), [&](uint64_t a, uint64_t b) { return keys[a] < keys[b]; });
}

// A Feistel network over pairs: each round adds to one number of the pair what Philox makes of the other.
uint64_t Permutation::once(uint64_t number) const {
  uint64_t a = number % left_;
  uint64_t b = number / left_;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t size = round % 2 == 0 ? left_ : right_;  // of what a is now
    const PhiloxBlock block = philox(seed_, offset_, b + (static_cast<uint64_t>(round) << 56));
    const uint64_t sum = a + below(join(block.words[0], block.words[1]), size);
    a = b;
    b = sum >= size ? sum - size : sum;
  }
  return a + b * left_;  // after an even number of rounds each stands in its place
}

// The pairs are a few more than n: what falls outside goes through again, until it is inside.
uint64_t Permutation::operator()(uint64_t row) const {
  if (!rows_.empty()) return rows_[row];
  do row = once(row);
  while (row >= n_);
  return row;
}

}  // namespace sherd::detail
