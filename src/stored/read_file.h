#pragma once
#include <string>

#include "sherd/storage.h"

namespace sherd::stored {

/// A small file, whole.
inline std::string read_file(const Storage& storage, const std::string& path) {
  const auto file = storage.open(path);
  std::string bytes(static_cast<size_t>(file->size()), '\0');
  const ReadRequest request{0, std::as_writable_bytes(std::span(bytes))};
  if (!bytes.empty()) file->read({&request, 1});
  return bytes;
}

}  // namespace sherd::stored
