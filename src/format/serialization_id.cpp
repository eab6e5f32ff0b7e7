#include "format/serialization_id.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_set>

namespace sherd::format {
namespace {

uint64_t combine(uint64_t seed, uint64_t value) { return seed ^ (value + 0x9e3779b9 + (seed << 6) + (seed >> 2)); }

}  // namespace

uint64_t hash_of_names(std::span<const std::string_view> names) {
  std::unordered_set<std::string> set;
  for (const std::string_view name : names) set.emplace(name);
  uint64_t hash = 0;
  for (const std::string& name : set) hash = combine(hash, std::hash<std::string>{}(name));
  return hash;
}

std::string serialization_id(uint64_t hash_of_names, std::span<const ZipEntry> entries) {
  uint64_t crcs = 0;
  for (const ZipEntry& entry : entries) {
    if (entry.size > 0) crcs = combine(crcs, entry.crc);
  }
  return fmt::format("{:020}{:020}", hash_of_names, crcs);
}

}  // namespace sherd::format
