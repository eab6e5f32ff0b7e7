#pragma once
// What communication costs, as far as a plan depends on it.

#include <cstdint>

namespace sherd::plan {

/// A collective takes call + messages * message + bytes * byte seconds. The defaults are those of one host over TCP.
struct CostModel {
  double call = 30e-6;
  double message = 10e-6;
  double byte = 1e-9;

  double seconds(int64_t messages, int64_t bytes) const {
    if (messages == 0) return 0;
    return call + static_cast<double>(messages) * message + static_cast<double>(bytes) * byte;
  }
};

}  // namespace sherd::plan
