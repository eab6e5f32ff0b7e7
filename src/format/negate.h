#pragma once
#include <cstdint>
#include <vector>

namespace sherd::format {

/// The negative of a number in two's complement, little endian.
inline void negate(std::vector<uint8_t>& number) {
  uint32_t carry = 1;
  for (uint8_t& byte : number) {
    carry += static_cast<uint8_t>(~byte);
    byte = static_cast<uint8_t>(carry);
    carry >>= 8;
  }
}

}  // namespace sherd::format
