#pragma once
// What communication costs, as far as plans depend on it.

#include <cstdint>
#include <string>
#include <string_view>

namespace sherd {

/// A collective takes call + messages * message + bytes * byte seconds, for the messages that a rank sends and the
/// bytes that it receives. The defaults are those of one host over TCP; measure_costs (redistribute.h) and `sherd
/// calibrate` find those of a machine.
struct CommCosts {
  double call = 30e-6;
  double message = 10e-6;
  double byte = 1e-9;

  double seconds(int64_t messages, int64_t bytes) const {
    if (messages == 0) return 0;
    return call + static_cast<double>(messages) * message + static_cast<double>(bytes) * byte;
  }
  bool operator==(const CommCosts&) const = default;
};

/// "call=3e-05,message=1e-05,byte=1e-09": seconds.
std::string to_string(const CommCosts& costs);
/// The inverse. Throws std::invalid_argument for anything else, and for numbers below zero.
CommCosts parse_costs(std::string_view text);

}  // namespace sherd
