#pragma once
// Every byte of a checkpoint's files, compared with digests or CRCs by several threads.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "format/archive.h"
#include "format/manifest.h"
#include "sherd/inspect.h"
#include "sherd/storage.h"
#include "stored/progress_count.h"

namespace sherd::stored {

/// Found by several threads.
class DamageList {
 public:
  void add(Damage damage) {
    const std::scoped_lock lock(mutex_);
    list_.push_back(std::move(damage));
  }
  /// By file and byte; neighbours in one file that have the same fault become one.
  std::vector<Damage> take();

 private:
  std::mutex mutex_;
  std::vector<Damage> list_;
};

/// Whether these bytes of a file are an archive of torch whose records have their CRCs.
bool has_whole_archive(const StoredFile& file, int64_t offset, int64_t length);

class ByteChecks {
 public:
  ByteChecks(const Storage& storage, DamageList& damage) : storage_(storage), damage_(damage) {}

  /// A file with digests. `path_of` says where blocks of an incremental checkpoint lie. Digests outlive this.
  using PathOf = std::function<std::string(const format::BlockPlace&)>;
  void add_blocks(const std::string& name, const std::string& path, const format::ManifestFile& digests,
                  const PathOf& path_of);

  /// Archives of torch in a file, each [offset, offset + length).
  struct Item {
    int64_t offset = 0;
    int64_t length = 0;
    const std::vector<std::string>* transforms = nullptr;
    int64_t most = 0;  // bytes that it may have been before these
  };
  void add_archives(const std::string& name, const std::string& path, std::vector<Item> items);

  /// A file that has nothing to compare with: it can be read, that is all.
  void add_plain(const std::string& name, const std::string& path, int64_t size);

  /// What has been added. Returns how many bytes were read.
  int64_t run(size_t threads, const Progress& progress);
  int64_t digests() const { return digests_; }
  int64_t crcs() const { return crcs_; }

 private:
  struct Sums;
  struct Task {
    std::string name;
    std::string path;
    std::function<void(const StoredFile& file, ProgressCount& count)> work;
  };
  void check_blocks(const std::string& name, const format::ManifestFile& digests, size_t first, size_t last,
                    const StoredFile& file, int64_t file_offset, ProgressCount& count);
  void check_item(const std::string& name, const Item& item, const StoredFile& file, ProgressCount& count);
  void check_records(const std::string& name, const Item& item, const format::ByteSource& source,
                     const std::function<void(int64_t)>& done);
  void check_large_record(const std::string& name, const std::string& path, int64_t start,
                          const format::Record& record);
  void add_large_item(const std::string& name, const std::string& path, const Item& item);
  void unreadable(const std::string& name, std::optional<Damage::Bytes> bytes, const std::exception& error);
  void wrong_crc(const std::string& name, int64_t start, const format::Record& record, uint32_t found);

  const Storage& storage_;
  DamageList& damage_;
  std::vector<Task> tasks_;
  int64_t total_ = 0;
  std::atomic<int64_t> digests_ = 0;
  std::atomic<int64_t> crcs_ = 0;
};

}  // namespace sherd::stored
