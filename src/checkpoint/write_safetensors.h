#pragma once
// A rank's files of a checkpoint in safetensors: what HuggingFaceStorageReader of torch.distributed.checkpoint reads.

#include <functional>
#include <span>
#include <string>

#include "checkpoint/items_to_save.h"
#include "checkpoint/save_report.h"
#include "checkpoint/saved_state.h"
#include "sherd/storage.h"

namespace sherd::detail {

struct SafetensorsOptions {
  std::string id;                                         // of the save
  std::vector<std::vector<format::PathPart>> dicts = {};  // as in Metadata
  int64_t rank = 0;
  bool id_in_names = false;                // for storages that cannot replace a folder
  std::function<void(int64_t)> told = {};  // of bytes that went by
};

/// Throws c10::ValueError, naming the first one, where a tensor's dtype has no name in safetensors.
void check_safetensors(const AgreedState& state);

/// One file for all items, more where it has several chunks of one tensor: the format has each name once. Objects are
/// in the texts of the first file; the first rank's also says where all names stood in the state.
SaveReport write_safetensors(Draft& draft, const AgreedState& state, std::span<const ItemToSave> items,
                             std::span<const ObjectToSave> objects, const SafetensorsOptions& options);

/// Writes the manifest, by which the files are known to be one checkpoint, and commits.
void commit_safetensors(Draft& draft, const std::string& id, const std::vector<SaveReport>& reports);

}  // namespace sherd::detail
