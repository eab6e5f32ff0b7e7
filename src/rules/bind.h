#pragma once

#include <optional>
#include <string>

#include "rules/bound_rule.h"
#include "rules/op_call.h"
#include "rules/rule.h"

namespace sherd::rules {

/// The rule for one call, or nothing where it does not hold: its guard says no, or the shapes do not fit its patterns.
/// `why`, where given, then says so.
std::optional<BoundRule> bind(const Rule& rule, const OpCall& call, std::string* why = nullptr);

}  // namespace sherd::rules
