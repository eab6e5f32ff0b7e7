#pragma once
// Where a checkpoint may be put: nothing of others is ever removed for it.

#include <string>
#include <string_view>

#include "sherd/storage.h"

namespace sherd::stored {

/// Whether a file of this name belongs to a checkpoint of any format that is a folder, as sherd or PyTorch names them.
bool is_of_checkpoint(std::string_view name);

/// Removes the drafts of a path that saves and removals did not bring to their end. Those of other ids than new_id()
/// gives are somebody's own.
void discard_stale_drafts(Storage& storage, const std::string& path);

enum class TargetKind { folder, file };

/// Throws std::invalid_argument where what would be put at `path` would take the place of something that is no
/// checkpoint: a folder with other files in it, a file where a folder is to be, or a folder where a file is.
void check_target(const std::string& operation, const Storage& storage, const std::string& path, TargetKind kind);

}  // namespace sherd::stored
