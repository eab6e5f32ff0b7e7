#include "comm/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

constexpr double kLeastShmBytes = 65536;

[[noreturn]] void refuse(const char* name, const std::string& value, const char* help) {
  throw_value_error(ErrorText("environment", std::string(name) + " has a value that makes no sense")
                        .fact(name, "\"" + value + "\"")
                        .help(help));
}

std::string read(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before any thread of ours
  return value == nullptr ? "" : value;
}

bool read_switch(const char* name) {
  const std::string value = read(name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  refuse(name, value, (std::string(name) + "=1").c_str());
}

Settings read_all() {
  Settings result;
  if (const std::string value = read("SHERD_TIMEOUT"); !value.empty()) {
    char* end = nullptr;
    const double seconds = std::strtod(value.c_str(), &end);
    if (*end != '\0' || !std::isfinite(seconds) || seconds <= 0 || seconds > 1e8) {
      refuse("SHERD_TIMEOUT", value, "SHERD_TIMEOUT=300  (seconds)");
    }
    result.timeout = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
  }
  result.check = read_switch("SHERD_CHECK");
  result.strict = read_switch("SHERD_STRICT");
  result.costs = read("SHERD_COSTS");
  if (const std::string value = read("SHERD_SHM_BYTES"); !value.empty()) {
    char* end = nullptr;
    const double bytes = std::strtod(value.c_str(), &end);
    if (*end != '\0' || !(bytes >= kLeastShmBytes) || bytes > 1e12) {
      refuse("SHERD_SHM_BYTES", value, "SHERD_SHM_BYTES=2097152  (bytes, 65536 or more)");
    }
    result.shm_bytes = static_cast<size_t>(bytes);
  }
  result.host = read("SHERD_HOST");
  result.log = read("SHERD_LOG");
  if (!result.log.empty() && result.log != "info" && result.log != "debug") {
    refuse("SHERD_LOG", result.log, "SHERD_LOG=info");
  }
  return result;
}

}  // namespace

std::chrono::milliseconds timeout_of(const WorldOptions& options) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365 * 30);
  return options.timeout.count() > 0 ? std::min(options.timeout, kMost) : settings().timeout;
}

const Settings& settings() {
  static const Settings value = read_all();
  return value;
}

}  // namespace sherd::detail
