#pragma once
#include <cstdint>
#include <functional>

namespace sherd {

/// Told from time to time how many bytes of how many are done. It may be called from several threads, one at a time,
/// and may throw: then the work ends with that exception, and what was being written is discarded.
using Progress = std::function<void(int64_t done, int64_t total)>;

}  // namespace sherd
