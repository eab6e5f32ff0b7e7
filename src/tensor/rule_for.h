#pragma once
#include <optional>
#include <vector>

#include "rules/bound_rule.h"
#include "tensor/infer.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// The rule of a call: the table's or the user's, or that of a pointwise operator where torch tags it as one. `results`
/// are those of infer_results.
std::optional<rules::BoundRule> rule_for(const OpInfo& info, const rules::OpCall& call,
                                         const std::optional<std::vector<std::vector<Geometry>>>& results);

}  // namespace sherd::detail
