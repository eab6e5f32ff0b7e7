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
#include "stored/stored_checkpoint.h"

namespace sherd::stored {

/// A checkpoint that elements come from. Each thread opens it for itself.
struct Source {
  std::shared_ptr<Storage> storage;
  std::string path;
  std::string save = {};  // save_of it, when it was opened first
};

/// What tells a save to a path from another one there: its contents, where they are known, else its id.
std::string save_of(const StoredCheckpoint& checkpoint);
/// The checkpoint once more, for a thread of its own. Throws std::runtime_error where somebody has replaced it since:
/// what was planned with one must not be read from another.
std::unique_ptr<StoredCheckpoint> open_again(const Source& source, const OpenOptions& options);

struct WriteOptions {
  OpenOptions open = {};
  /// Make a digest of every block, also where no text of the plan asks for them.
  bool digests = true;
  Progress progress = {};
  /// What it takes of memory to open the sources, which every thread does: there are fewer threads where that is much.
  int64_t bytes_to_open = 0;
  /// What all threads may take together, about.
  int64_t memory = kMemory;

  static constexpr int64_t kMemory = int64_t{200} << 20;
};

/// How many threads work on checkpoints that take so much memory to open, within about `memory`: 1 at least, and at
/// most 8 and as many as there are cores.
size_t threads_for(int64_t bytes_to_open, int64_t memory);

/// Writes all files of the plans into the draft and finishes them. Where an Elements is a whole chunk of a file that
/// has its CRC and no digests, the CRC is compared on the way. Returns their lengths and digests, in the order of the
/// plans. At most 8 threads with 8 MiB each, and what reading takes.
std::vector<format::ManifestFile> write_files(std::span<const Source> sources, Draft& draft,
                                              std::span<const FilePlan> plans, const WriteOptions& options);

}  // namespace sherd::stored
