#pragma once
// The manifest beside a checkpoint's files.

#include <optional>
#include <string>

#include "format/manifest.h"
#include "sherd/storage.h"

namespace sherd::stored {

/// The manifest in a file; nothing where there is no such file or, if `tolerant`, where its bytes are none.
std::optional<format::Manifest> read_manifest(const Storage& storage, const std::string& file, bool tolerant);

}  // namespace sherd::stored
