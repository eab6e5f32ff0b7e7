#pragma once
#include <memory>
#include <string>

#include "stored/block_file.h"

namespace sherd::stored {

/// A file of a checkpoint that must be there, and as long as it was saved where `digests`, which may be null, say how
/// long that was: std::runtime_error otherwise. Digests and options outlive it. It need not stay open.
std::unique_ptr<BlockFile> open_block_file(const std::shared_ptr<Storage>& storage, const std::string& path,
                                           const format::ManifestFile* digests, const OpenOptions& options);

}  // namespace sherd::stored
