#pragma once
// What a user can turn on for a thread or the process, and the log.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sherd/dtensor.h"
#include "sherd/error.h"

namespace sherd::detail {

/// An operator without a rule is an error (SHERD_STRICT=1, or set_strict).
bool strict();

/// This thread's ExplicitRedistribution mode. The thread in which autograd runs backward passes on a GPU has its own,
/// `allow`; recompute's second run there has the mode of the first.
ExplicitRedistribution::Mode redistribution_mode();

/// Where this thread is in an ExplicitRedistribution scope: throws c10::ValueError with the text that `tell` makes of
/// what an operator would move by itself, or warns with it, once for each text. A warning that somebody asked for is
/// written to stderr whatever SHERD_LOG says.
void refuse_or_warn(const ErrorText& text);
template <class Tell>
void check_explicit(const Tell& tell) {
  if (redistribution_mode() != ExplicitRedistribution::Mode::allow) refuse_or_warn(tell());
}

/// The text for check_explicit: what would be moved, each fact a name and a value, and the line that moves it first.
ErrorText would_move(std::string_view operation, const std::vector<std::pair<std::string, std::string>>& facts,
                     const std::string& instead);

/// Writes a line to the log (stderr where SHERD_LOG=info or debug), once per process for each text, or for each thing
/// that the texts are about.
void log_once(const std::string& text);
void log_once(const std::string& about, const std::string& text);

}  // namespace sherd::detail
