#pragma once
// Reading all of a checkpoint that may be anything.

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "sherd/storage.h"
#include "stored/stored_checkpoint.h"

namespace sherd::testing {

/// Reads all of it; false where it is refused.
inline bool can_be_read(const std::shared_ptr<Storage>& storage, const std::string& path) {
  constexpr int64_t kMost = 1 << 20;  // a tensor of strides 0 is as large as it likes
  try {
    const auto checkpoint = stored::open_checkpoint(storage, path);
    for (const format::MetadataEntry& entry : checkpoint->metadata().entries) {
      if (const auto* object = std::get_if<format::BytesEntry>(&entry.content)) {
        checkpoint->check_file(object->place, entry.name);
        checkpoint->object(object->place, entry.name);
        continue;
      }
      const auto& tensor = std::get<format::TensorEntry>(entry.content);
      for (size_t i = 0; i < tensor.chunk_count(); ++i) {
        const Box box = tensor.box(i);
        if (numel(box) > kMost) continue;
        checkpoint->check_file(tensor.places[i], entry.name);
        stored::read_box(
            checkpoint->locate(tensor, i, entry.name), {Dims(box.size.size(), 0), box.size},
            [](const stored::ReadPart&) {}, entry.name);
      }
    }
    return true;
  } catch (const std::invalid_argument&) {
  } catch (const std::runtime_error&) {
  }
  return false;
}

/// Whether what is in it, written out, takes little memory: of an intact one.
inline bool is_small(const std::shared_ptr<Storage>& storage, const std::string& path) {
  constexpr int64_t kMost = 16 << 20;
  const auto checkpoint = stored::open_checkpoint(storage, path);
  int64_t left = kMost;
  for (const format::MetadataEntry& entry : checkpoint->metadata().entries) {
    const auto* tensor = std::get_if<format::TensorEntry>(&entry.content);
    if (tensor != nullptr) left -= std::min(numel(tensor->size), kMost) * size_of(tensor->dtype);
    if (left < 0) return false;
  }
  return true;
}

}  // namespace sherd::testing
