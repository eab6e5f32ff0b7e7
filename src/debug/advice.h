#pragma once
// Why something is communicated, and what would spare it.

#include <string>

#include "debug/debug_log.h"

namespace sherd::detail {

struct Advice {
  std::string why;
  std::string instead;  // empty where it is needed
};

/// `call`: of the operator, where it is one that moves operands; null otherwise.
Advice advise(const CommRecord& record, const MovingCallPtr& call);

}  // namespace sherd::detail
