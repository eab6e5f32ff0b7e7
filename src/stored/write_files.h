#pragma once
// Files written from plans, by as many threads as there are cores, in memory that does not depend on their size.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "sherd/progress.h"
#include "sherd/storage.h"
#include "stored/file_plan.h"
#include "stored/open_options.h"

namespace sherd::stored {

/// A checkpoint that elements come from. Each thread opens it for itself.
struct Source {
  std::shared_ptr<Storage> storage;
  std::string path;
};

struct WriteOptions {
  OpenOptions open = {};
  /// Make a digest of every block, also where no text of the plan asks for them.
  bool digests = true;
  Progress progress = {};
  /// What it takes of memory to open the sources, which every thread does: there are fewer threads where that is much.
  int64_t bytes_to_open = 0;
};

/// How many threads work on checkpoints that take so much memory to open, within about 200 MiB: 8 at most.
size_t threads_for(int64_t bytes_to_open);

/// Writes all files of the plans into the draft and finishes them. Where an Elements is a whole chunk of a file that
/// has its CRC and no digests, the CRC is compared on the way. Returns their lengths and digests, in the order of the
/// plans. At most 8 threads with 8 MiB each, and what reading takes.
std::vector<format::ManifestFile> write_files(std::span<const Source> sources, Draft& draft,
                                              std::span<const FilePlan> plans, const WriteOptions& options);

}  // namespace sherd::stored
