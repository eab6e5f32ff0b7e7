#pragma once
// One name of a checkpoint, for verbs that look at it alone.

#include <memory>
#include <string>

#include "stored/stored_checkpoint.h"

namespace sherd::tools {

struct StoredEntry {
  std::unique_ptr<stored::StoredCheckpoint> checkpoint;
  const format::MetadataEntry* entry;
  const format::TensorEntry* tensor() const { return std::get_if<format::TensorEntry>(&entry->content); }
};

/// Throws std::invalid_argument where the checkpoint has no such name, with names that are like it.
StoredEntry open_entry(const std::string& verb, const std::string& path, const std::string& name, bool verify);

}  // namespace sherd::tools
