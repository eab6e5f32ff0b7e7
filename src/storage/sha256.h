#pragma once
// SHA-256 (FIPS 180-4) and HMAC, for the few hundred bytes that a request to an object store is signed by.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sherd {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view text);
Digest hmac_sha256(std::string_view key, std::string_view text);

inline std::string_view text_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
std::string hex_of(const Digest& digest);

}  // namespace sherd
