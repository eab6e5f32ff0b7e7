#pragma once
// Opening for those who look at checkpoints: what is no checkpoint is told from what is a damaged one.

#include <memory>
#include <string>

#include "stored/stored_checkpoint.h"

namespace sherd::stored {

/// open_checkpoint, but metadata that cannot be read are a DamagedCheckpoint.
std::unique_ptr<StoredCheckpoint> open_known(const std::shared_ptr<Storage>& storage, const std::string& path,
                                             const OpenOptions& options);

/// The disk where there is none.
std::shared_ptr<Storage> storage_or_disk(const std::shared_ptr<Storage>& storage);

/// Where a file of the checkpoint at `path` lies: in the folder, or the path itself where that is one file.
std::string file_path(const Storage& storage, const std::string& path, const std::string& name);

}  // namespace sherd::stored
