#include "storage/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sherd/error.h"

namespace sherd {
namespace {

using Opened = std::shared_ptr<const StoredFile>;

size_t most_open() {
  constexpr rlim_t kLeast = 16;
  constexpr rlim_t kMost = 4096;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeast;
  return static_cast<size_t>(std::clamp(limit.rlim_cur / 2, kLeast, kMost));
}

// Those of the process. Whoever reads a file holds it, too: what is taken out here is closed when its readers are done.
class OpenFiles {
 public:
  Opened get(const void* owner, const std::function<Opened()>& open) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto place = places_.find(owner); place != places_.end()) {
        by_use_.splice(by_use_.end(), by_use_, place->second);
        return place->second->second;
      }
    }
    Opened file = open();
    std::vector<Opened> closed;  // without the lock
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = places_.try_emplace(owner);
    if (!is_new) return place->second->second;  // another thread was quicker
    place->second = by_use_.emplace(by_use_.end(), owner, file);
    for (const size_t most = most_open(); by_use_.size() > most; by_use_.pop_front()) {
      places_.erase(by_use_.front().first);
      closed.push_back(std::move(by_use_.front().second));
    }
    return file;
  }

  void close(const void* owner) {
    Opened closed;
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(owner);
    if (place == places_.end()) return;
    closed = std::move(place->second->second);
    by_use_.erase(place->second);
    places_.erase(place);
  }

 private:
  using ByUse = std::list<std::pair<const void*, Opened>>;  // the one that was read last at the end

  std::mutex mutex_;
  ByUse by_use_;
  std::unordered_map<const void*, ByUse::iterator> places_;
};

// Never destroyed: files of other static things may outlive it.
OpenFiles& open_files() {
  static auto* files = new OpenFiles;
  return *files;
}

class ReopenedFile final : public StoredFile {
 public:
  ReopenedFile(std::shared_ptr<const Storage> storage, std::string path)
      : storage_(std::move(storage)), path_(std::move(path)) {
    size_ = opened()->size();
  }
  ~ReopenedFile() override { open_files().close(this); }
  ReopenedFile(const ReopenedFile&) = delete;
  ReopenedFile& operator=(const ReopenedFile&) = delete;

  int64_t size() const override { return size_; }
  void read(std::span<const ReadRequest> requests) const override { opened()->read(requests); }
  void expect(int64_t offset, int64_t size) const noexcept override {
    try {
      opened()->expect(offset, size);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): who reads is told
    }
  }

 private:
  Opened opened() const {
    return open_files().get(this, [&] {
      Opened file = storage_->open(path_);
      if (size_ < 0 || file->size() == size_) return file;
      throw std::runtime_error(ErrorText("read", "a file has another length than before")
                                   .fact("file", path_)
                                   .fact("bytes before", fmt::to_string(size_))
                                   .fact("bytes there", fmt::to_string(file->size()))
                                   .help("somebody wrote over it meanwhile: try again"));
    });
  }

  std::shared_ptr<const Storage> storage_;
  std::string path_;
  int64_t size_ = -1;  // until it was opened for the first time
};

}  // namespace

std::shared_ptr<const StoredFile> open_while_read(std::shared_ptr<const Storage> storage, std::string path) {
  return std::make_shared<ReopenedFile>(std::move(storage), std::move(path));
}

}  // namespace sherd
