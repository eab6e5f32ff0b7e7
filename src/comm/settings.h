#pragma once
// The one place where sherd's environment variables are read; docs/environment.md lists them.

#include <chrono>
#include <string>

namespace sherd::detail {

struct Settings {
  std::chrono::milliseconds timeout{300'000};  // SHERD_TIMEOUT, seconds
  bool check = false;                          // SHERD_CHECK
  std::string log;                             // SHERD_LOG: "", "info", "debug"
};

/// Read once, on first use. Throws c10::ValueError for a value that makes no sense.
const Settings& settings();

}  // namespace sherd::detail
