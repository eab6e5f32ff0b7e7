#pragma once
// The one place where sherd's environment variables are read; docs/environment.md lists them.

#include <chrono>
#include <cstddef>
#include <string>

#include "sherd/world.h"

namespace sherd::detail {

struct Settings {
  std::chrono::milliseconds timeout{300'000};  // SHERD_TIMEOUT, seconds
  bool check = false;                          // SHERD_CHECK
  bool strict = false;                         // SHERD_STRICT
  std::string costs;                           // SHERD_COSTS, as sherd calibrate prints it
  size_t shm_bytes = size_t{2} << 20;          // SHERD_SHM_BYTES, for each rank of a group
  std::string host;                            // SHERD_HOST: believed instead of host_key()
  std::string log;                             // SHERD_LOG: "", "info", "debug"
};

/// Read once, on first use. Throws c10::ValueError for a value that makes no sense.
const Settings& settings();

/// What the options say, or else the settings; at most thirty years, so that clocks do not overflow.
std::chrono::milliseconds timeout_of(const WorldOptions& options);

}  // namespace sherd::detail
