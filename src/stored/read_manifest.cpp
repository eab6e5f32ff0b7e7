#include "stored/read_manifest.h"

#include <span>
#include <stdexcept>

#include "stored/read_file.h"

namespace sherd::stored {

std::optional<format::Manifest> read_manifest(const Storage& storage, const std::string& file, bool tolerant) {
  if (!storage.exists(file)) return std::nullopt;
  const std::string bytes = read_file(storage, file);
  try {
    return format::decode_manifest(std::as_bytes(std::span(bytes)), file);
  } catch (const std::invalid_argument&) {
    if (!tolerant) throw;
  }
  return std::nullopt;
}

}  // namespace sherd::stored
