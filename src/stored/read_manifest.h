#pragma once
// The manifest beside a checkpoint's files.

#include <optional>
#include <string>

#include "format/manifest.h"
#include "sherd/storage.h"
#include "stored/open_options.h"

namespace sherd::stored {

/// The manifest in a file; nothing where there is no such file or, if `tolerant`, where its bytes are none.
std::optional<format::Manifest> read_manifest(const Storage& storage, const std::string& file, bool tolerant);

/// The same for who opens a checkpoint: bytes that are none are refused where they are to be compared with others, with
/// the file and what to do, else `damaged` says so.
std::optional<format::Manifest> open_manifest(const Storage& storage, const std::string& file,
                                              const OpenOptions& options, bool& damaged);

}  // namespace sherd::stored
