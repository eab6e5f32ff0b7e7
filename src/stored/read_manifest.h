#pragma once
// The manifest beside a checkpoint's files.

#include <optional>
#include <string>

#include "format/manifest.h"
#include "sherd/storage.h"
#include "stored/open_options.h"

namespace sherd::stored {

/// The manifest in a file; nothing where there is no such file or, if `tolerant`, where its bytes are none. Unless
/// `tolerant`, a file that is not there is the one that the metadata beside it name, as after a copy from a storage
/// where names have ids; std::invalid_argument is thrown where that is not there either: nobody knows then what the
/// checkpoint stands on.
std::optional<format::Manifest> read_manifest(const Storage& storage, const std::string& file, bool tolerant);

/// The same for who opens a checkpoint: bytes that are none are refused where they are to be compared with others, with
/// the file and what to do, else `damaged` says so.
std::optional<format::Manifest> open_manifest(const Storage& storage, const std::string& file,
                                              const OpenOptions& options, bool& damaged);

/// For a manifest that was written, as the file `told_by` beside it says, and is gone.
[[noreturn]] void throw_missing_manifest(const Storage& storage, const std::string& file, const std::string& told_by,
                                         const OpenOptions& options);

}  // namespace sherd::stored
