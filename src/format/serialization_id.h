#pragma once
// The last record of torch's archives: 20 digits from the names of the records, 20 from their CRCs. Nobody checks it;
// it is written so that equal tensors give equal files whoever writes them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/zip.h"

namespace sherd::format {

/// Of the names without the folder, in torch's order of them: that of a std::unordered_set in libstdc++.
uint64_t hash_of_names(std::span<const std::string_view> names);
std::string serialization_id(uint64_t hash_of_names, std::span<const ZipEntry> entries);

}  // namespace sherd::format
