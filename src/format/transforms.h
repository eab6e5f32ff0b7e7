#pragma once
// What may be done to an item on its way into a file: PyTorch's stream extensions, by their names.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sherd::format {

/// The bytes that an item was before `transforms` were applied, the last of them first: "stream.zstd/1". Throws
/// std::invalid_argument for a name that is not known, for bytes that are not what the name says, and for more than
/// `most`.
std::string decode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes, int64_t most);

/// The inverse.
std::string encode(const std::vector<std::string>& transforms, std::span<const std::byte> bytes);

}  // namespace sherd::format
