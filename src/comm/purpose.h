#pragma once
// What a thread's collectives are for, as far as all ranks must mean the same by them: calls whose tensors fit together
// but which belong to different things are calls that differ.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sherd::detail {

struct Purpose {
  /// `more`: of what would make the text too long; 0 where that says all.
  explicit Purpose(std::string what, uint64_t more = 0);
  const std::string text;  // "redistribute f32[4@0, 6] on [2] -> (S(1)) on [2]"
  const uint64_t hash;     // of the text and the rest; the same in every process
};
using PurposePtr = std::shared_ptr<const Purpose>;

/// What is for all of these at once; there is at least one.
PurposePtr common_purpose(const std::vector<PurposePtr>& purposes);

/// This thread's, or null.
const PurposePtr& current_purpose();

/// While it lives, this thread's collectives are for this. Costs no more than two pointers.
class PurposeScope {
 public:
  explicit PurposeScope(PurposePtr purpose);
  ~PurposeScope();
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;

 private:
  PurposePtr outer_;
};

}  // namespace sherd::detail
