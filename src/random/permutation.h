#pragma once
// A random permutation, any row of which can be computed alone.

#include <cstdint>
#include <vector>

namespace sherd::detail {

class Permutation {
 public:
  /// Of 0 ... n - 1. Costs O(1), for small n O(n log n).
  Permutation(uint64_t n, uint64_t seed, uint64_t offset);
  uint64_t operator()(uint64_t row) const;

 private:
  uint64_t once(uint64_t number) const;

  uint64_t n_;
  uint64_t seed_;
  uint64_t offset_;
  uint64_t left_ = 1;  // numbers below n are pairs of one below left and one below right
  uint64_t right_ = 1;
  std::vector<uint64_t> rows_;  // where n is small, all of it
};

}  // namespace sherd::detail
