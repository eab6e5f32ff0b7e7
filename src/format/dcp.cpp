#include "format/dcp.h"

namespace sherd::format {

Box TensorEntry::box(size_t i) const {
  const auto offset = offsets(i);
  const auto length = sizes(i);
  return {{offset.begin(), offset.end()}, {length.begin(), length.end()}};
}

void TensorEntry::add(const Dims& chunk_offsets, const Dims& chunk_sizes, const Place& place) {
  numbers.insert(numbers.end(), chunk_offsets.begin(), chunk_offsets.end());
  numbers.insert(numbers.end(), chunk_sizes.begin(), chunk_sizes.end());
  places.push_back(place);
}

int32_t Metadata::file_number(const std::string& name) {
  for (size_t i = files.size(); i-- > 0;) {
    if (files[i] == name) return static_cast<int32_t>(i);
  }
  files.push_back(name);
  return static_cast<int32_t>(files.size() - 1);
}

const MetadataEntry* Metadata::find(std::string_view name) const {
  for (const MetadataEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace sherd::format
