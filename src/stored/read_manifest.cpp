#include "stored/read_manifest.h"

#include <fmt/format.h>

#include <span>
#include <stdexcept>

#include "sherd/error.h"
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

std::optional<format::Manifest> open_manifest(const Storage& storage, const std::string& file,
                                              const OpenOptions& options, bool& damaged) {
  if (!storage.exists(file)) return std::nullopt;
  const std::string bytes = read_file(storage, file);
  try {
    return format::decode_manifest(std::as_bytes(std::span(bytes)), file);
  } catch (const std::invalid_argument& error) {
    damaged = true;
    if (options.tolerant || !options.verify) return std::nullopt;
    throw std::invalid_argument(ErrorText(options.operation, "the manifest of the checkpoint is damaged")
                                    .fact("file", file)
                                    .fact("bytes", fmt::format("0 to {}", bytes.size()))
                                    .fact("because", error.what())
                                    .help(take_as_is(options)));
  }
}

}  // namespace sherd::stored
