#pragma once
// A rank's file of a distributed checkpoint, and the metadata of all files.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/items_to_save.h"
#include "checkpoint/save_report.h"
#include "checkpoint/saved_state.h"
#include "format/dcp.h"
#include "sherd/storage.h"
#include "stored/base_blocks.h"

namespace sherd::detail {

struct DistcpOptions {
  std::string name;                          // of the file
  const stored::BaseBlocks* base = nullptr;  // may be null
  bool compress = false;
  std::function<void(int64_t)> told = {};  // of bytes that went by, before they are compressed
};

/// The bytes that will be told of.
int64_t distcp_bytes(std::span<const ItemToSave> items, std::span<const ObjectToSave> objects);
SaveReport write_distcp(Draft& draft, std::span<const ItemToSave> items, std::span<const ObjectToSave> objects,
                        const DistcpOptions& options);

/// What `.metadata` says of the files that the ranks reported, their names in the same order. Where every item lies
/// follows from the plan, but for objects and compressed ones, of which their writers tell.
format::Metadata distcp_metadata(const AgreedState& state, const std::vector<std::string>& files,
                                 const std::vector<SaveReport>& reports, bool compressed);

}  // namespace sherd::detail
