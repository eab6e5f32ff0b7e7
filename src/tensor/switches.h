#pragma once
// What a user can turn on for a thread or the process, and the log.

#include <string>

#include "sherd/dtensor.h"

namespace sherd::detail {

/// An operator without a rule is an error (SHERD_STRICT=1, or set_strict).
bool strict();

/// This thread's ExplicitRedistribution mode.
ExplicitRedistribution::Mode redistribution_mode();

/// Writes a line to the log (stderr where SHERD_LOG=info or debug), once per process for each text.
void log_once(const std::string& text);

}  // namespace sherd::detail
