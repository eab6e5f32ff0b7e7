#pragma once
// The text that the demo learns, and the batches drawn from it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

/// The contents of text.txt, which was written for this demo.
extern const std::string_view kText;

/// Of weights and batches, where nobody says another.
constexpr uint64_t kSeed = 20;

struct Batch {
  at::Tensor inputs;   // [rows, length], numbers of characters
  at::Tensor targets;  // the same moved on by one
};

/// A text as numbers, one for each different character. Safe to read from several threads.
class Corpus {
 public:
  explicit Corpus(std::string_view text);

  int64_t vocabulary() const { return vocabulary_; }
  /// How many characters there are.
  int64_t size() const { return characters_.numel(); }
  /// Rows that begin at random places; the same for every caller that gives the same step and seed.
  Batch batch(int64_t step, int64_t rows, int64_t length, uint64_t seed = kSeed) const;

 private:
  int64_t vocabulary_ = 0;
  at::Tensor characters_;
};
