#pragma once
// The last step of writing a distributed checkpoint: what tells of all files.

#include <string>

#include "format/dcp.h"
#include "format/manifest.h"
#include "sherd/storage.h"

namespace sherd::stored {

inline constexpr const char* kMetadataName = ".metadata";
/// "__3_0.distcp", of the fourth rank.
std::string distcp_name(const Storage& storage, const std::string& id, int64_t rank);

/// Writes .metadata, which gets the manifest's name, and the manifest, which has all other files already, and commits
/// the draft.
void commit_dcp(const Storage& storage, Draft& draft, format::Metadata metadata, format::Manifest manifest);

}  // namespace sherd::stored
