#pragma once
// Operators that are other operators in disguise once their tensors are sharded: a mean is a sum divided by the global
// count, and so on. A rewrite runs on DTensors, so each part takes its own rule.

#include "tensor/op_info.h"

namespace sherd::detail {

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

/// The innermost of these, as people call it; "rewrite" where there is none.
std::string operation_under_way();

}  // namespace sherd::detail
