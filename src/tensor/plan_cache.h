#pragma once
// Plans by the words of their key. One per thread, so it takes no locks; a hit allocates nothing.

#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/op_plan.h"

namespace sherd::detail {

/// The words that decide a plan: the operator, the specs of its tensors, its keyed arguments.
class PlanKey {
 public:
  [[gnu::always_inline]] void add(uint64_t word) {
    if (size_ < kInline) {
      words_[size_] = word;
    } else {
      more_.push_back(word);
    }
    ++size_;
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 32;
  }
  uint64_t hash() const { return hash_; }
  bool equals(const std::vector<uint64_t>& words) const {
    if (words.size() != size_) return false;
    const size_t inlined = size_ < kInline ? size_ : kInline;
    for (size_t i = 0; i < inlined; ++i) {
      if (words_[i] != words[i]) return false;
    }
    for (size_t i = kInline; i < size_; ++i) {
      if (more_[i - kInline] != words[i]) return false;
    }
    return true;
  }
  std::vector<uint64_t> words() const {
    std::vector<uint64_t> all(words_, words_ + (size_ < kInline ? size_ : kInline));
    all.insert(all.end(), more_.begin(), more_.end());
    return all;
  }

 private:
  static constexpr size_t kInline = 40;
  uint64_t words_[kInline];  // NOLINT: left unset on purpose, `size_` says how many count
  size_t size_ = 0;
  uint64_t hash_ = 0;
  std::vector<uint64_t> more_;
};

class PlanCache {
 public:
  /// The plan, or null.
  OpPlan* find(const PlanKey& key) const {
    for (size_t i = key.hash() & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (!entry.plan) return nullptr;
      if (entry.hash == key.hash() && key.equals(entry.words)) return entry.plan.get();
    }
  }
  OpPlan* insert(const PlanKey& key, std::unique_ptr<OpPlan> plan);
  size_t size() const { return count_; }
  void clear();

 private:
  struct Entry {
    uint64_t hash = 0;
    std::vector<uint64_t> words;
    std::unique_ptr<OpPlan> plan;
  };
  void grow();

  std::vector<Entry> entries_ = std::vector<Entry>(256);
  size_t mask_ = 255;
  size_t count_ = 0;
};

}  // namespace sherd::detail
