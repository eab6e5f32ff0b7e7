#pragma once
// Operators that are other operators in disguise once their tensors are sharded: a mean is a sum divided by the global
// count, and so on. A rewrite runs on DTensors, so each part takes its own rule.

#include <c10/core/ScalarType.h>

#include "tensor/op_info.h"

namespace sherd::detail {

/// Whether a Partial must be reduced before its values become of another type, since to convert the parts of a sum is
/// not to convert the sum: a part of 0.6 becomes 0, any part but 0 is true, and what is beyond the largest small
/// integer begins anew only as long as it is one.
bool is_reduced_before(c10::ScalarType from, c10::ScalarType to);

/// Null where the operator has none.
Rewrite rewrite_for(const std::string& name, const std::string& overload);

/// Names the operator that this thread rewrites while it lives: for errors. Rewrites nest.
class Rewriting {
 public:
  explicit Rewriting(const OpInfo& info);
  ~Rewriting();
  Rewriting(const Rewriting&) = delete;
  Rewriting& operator=(const Rewriting&) = delete;

 private:
  const OpInfo* outer_;
};

/// What a rewrite returns that leaves a call to its plan because of what it found in the data. That plan is not kept:
/// with other data, or on a rank that has dropped its plans, the next such call would go another way.
bool not_for_these_data();
/// Whether this thread's last rewrite said so; asked once.
bool was_not_for_these_data();

/// The innermost of these, as people call it; "rewrite" where there is none.
std::string operation_under_way();

}  // namespace sherd::detail
