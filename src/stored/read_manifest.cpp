#include "stored/read_manifest.h"

#include <fmt/format.h>

#include <span>
#include <stdexcept>

#include "format/dcp.h"
#include "sherd/damage.h"
#include "sherd/error.h"
#include "stored/read_file.h"

namespace sherd::stored {

namespace {

// The file beside a manifest's place that the metadata there name; empty where they name none.
std::string named_in_metadata(const Storage& storage, const std::string& file) {
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  const std::string metadata = folder + ".metadata";
  if (!storage.exists(metadata)) return {};
  const std::string bytes = read_file(storage, metadata);
  const std::string name = format::decode_metadata(std::as_bytes(std::span(bytes)), metadata).manifest;
  return name.empty() ? name : folder + name;
}

format::Manifest decode_file(const Storage& storage, const std::string& file) {
  const std::string bytes = read_file(storage, file);
  return format::decode_manifest(std::as_bytes(std::span(bytes)), file);
}

}  // namespace

std::optional<format::Manifest> read_manifest(const Storage& storage, const std::string& file, bool tolerant) {
  if (!storage.exists(file)) {
    const std::string named = tolerant ? std::string() : named_in_metadata(storage, file);
    if (named.empty()) return std::nullopt;
    if (storage.exists(named)) return decode_file(storage, named);
    throw std::invalid_argument(ErrorText("read_manifest", "the manifest is missing").fact("file", named));
  }
  try {
    return decode_file(storage, file);
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

void throw_missing_manifest(const Storage& storage, const std::string& file, const std::string& told_by,
                            const OpenOptions& options) {
  ErrorText text(options.operation, "a file of the checkpoint is missing");
  text.fact("file", file);
  if (storage.exists(file)) text.fact("there", "that of another save");
  throw DamagedCheckpoint(text.fact("because", told_by + " says that digests were saved").help(take_as_is(options)));
}

}  // namespace sherd::stored
