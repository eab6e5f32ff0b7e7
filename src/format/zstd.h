#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sherd::format {

/// Of one or more frames, with or without their sizes. Throws std::invalid_argument for damaged bytes, and for more
/// than `most`.
std::string zstd_decode(std::span<const std::byte> bytes, int64_t most);
std::string zstd_encode(std::span<const std::byte> bytes);

}  // namespace sherd::format
