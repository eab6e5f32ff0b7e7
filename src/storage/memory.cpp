// Folders in memory: one map from paths to bytes. A draft is a map of its own until it is committed.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "sherd/storage.h"
#include "storage/io_error.h"
#include "storage/paths.h"

namespace sherd {
namespace {

using Bytes = std::vector<std::byte>;
using Files = std::map<std::string, std::shared_ptr<const Bytes>>;  // by path

struct Memory {
  std::mutex mutex;
  Files files;
  std::map<std::pair<std::string, std::string>, Files> drafts;  // by folder and id; files by their names
};

// The files at the path or below it.
auto files_below(Files& files, const std::string& path) {
  const auto inside = [&](const std::string& name) {
    return name == path || path == "." || name.starts_with(path == "/" ? path : path + "/");
  };
  std::vector<Files::iterator> found;
  for (auto file = files.begin(); file != files.end(); ++file) {
    if (inside(file->first)) found.push_back(file);
  }
  return found;
}

class MemoryFile final : public StoredFile {
 public:
  MemoryFile(std::string path, std::shared_ptr<const Bytes> bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}

  int64_t size() const override { return static_cast<int64_t>(bytes_->size()); }

  void read(std::span<const ReadRequest> requests) const override {
    for (const ReadRequest& request : requests) {
      const int64_t end = request.offset + static_cast<int64_t>(request.into.size());
      if (request.into.empty()) continue;
      if (end > size()) throw_too_short(path_, size(), {request.offset, end});
      std::memcpy(request.into.data(), bytes_->data() + request.offset, request.into.size());
    }
  }

 private:
  std::string path_;
  std::shared_ptr<const Bytes> bytes_;
};

class MemoryWriter final : public FileWriter {
 public:
  using Finish = std::function<void(std::shared_ptr<const Bytes>)>;
  MemoryWriter(int64_t size, Finish finish) : bytes_(static_cast<size_t>(size)), finish_(std::move(finish)) {}

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    if (bytes.empty()) return;
    const auto begin = static_cast<size_t>(offset);
    const std::scoped_lock lock(mutex_);
    if (bytes_.size() < begin + bytes.size()) bytes_.resize(begin + bytes.size());
    std::memcpy(bytes_.data() + begin, bytes.data(), bytes.size());
  }

  void finish() override {
    const std::scoped_lock lock(mutex_);
    finish_(std::make_shared<const Bytes>(std::move(bytes_)));
  }

 private:
  std::mutex mutex_;
  Bytes bytes_;
  Finish finish_;
};

class MemoryDraft final : public Draft {
 public:
  MemoryDraft(std::shared_ptr<Memory> memory, std::string folder, std::string id)
      : memory_(std::move(memory)), key_(std::move(folder), std::move(id)) {
    const std::scoped_lock lock(memory_->mutex);
    memory_->drafts.try_emplace(key_);
  }

  std::unique_ptr<FileWriter> create(const std::string& name, int64_t size) override {
    if (name != kItself) check_file_name(name);
    return std::make_unique<MemoryWriter>(size,
                                          [memory = memory_, key = key_, name](std::shared_ptr<const Bytes> bytes) {
                                            const std::scoped_lock lock(memory->mutex);
                                            const auto draft = memory->drafts.find(key);
                                            if (draft == memory->drafts.end())
                                              throw_no_such_file("finish", key.first + "/" + name);
                                            draft->second[name] = std::move(bytes);
                                          });
  }

  bool has(const std::string& name) const override {
    const std::scoped_lock lock(memory_->mutex);
    const auto draft = memory_->drafts.find(key_);
    return draft != memory_->drafts.end() && draft->second.contains(name);
  }

  void commit(const std::string& last) override {
    const std::scoped_lock lock(memory_->mutex);
    const auto draft = memory_->drafts.find(key_);
    if (draft == memory_->drafts.end() || !draft->second.contains(last)) throw_incomplete_draft(key_.first, last);
    for (const auto old : files_below(memory_->files, key_.first)) memory_->files.erase(old);
    for (auto& [name, bytes] : draft->second)
      memory_->files[name == kItself ? key_.first : key_.first + "/" + name] = std::move(bytes);
    memory_->drafts.erase(draft);
  }

  void discard() noexcept override {
    const std::scoped_lock lock(memory_->mutex);
    memory_->drafts.erase(key_);
  }

 private:
  std::shared_ptr<Memory> memory_;
  std::pair<std::string, std::string> key_;  // folder and id
};

class MemoryStorage final : public Storage {
 public:
  std::unique_ptr<StoredFile> open(const std::string& path) const override {
    const std::scoped_lock lock(memory_->mutex);
    const auto file = memory_->files.find(clean_path(path));
    if (file == memory_->files.end()) throw_no_such_file("open", path);
    return std::make_unique<MemoryFile>(file->first, file->second);
  }

  bool exists(const std::string& path) const override {
    const std::scoped_lock lock(memory_->mutex);
    return !files_below(memory_->files, clean_path(path)).empty();
  }

  std::vector<std::string> list(const std::string& folder) const override {
    const std::string place = clean_path(folder);
    const size_t skip = place == "." ? 0 : place == "/" ? 1 : place.size() + 1;
    std::set<std::string> names;
    const std::scoped_lock lock(memory_->mutex);
    for (const auto file : files_below(memory_->files, place)) {
      if (file->first.size() > skip) names.insert(file->first.substr(skip, file->first.find('/', skip) - skip));
    }
    return {names.begin(), names.end()};
  }

  void remove(const std::string& path) override {
    const std::scoped_lock lock(memory_->mutex);
    for (const auto file : files_below(memory_->files, clean_path(path))) memory_->files.erase(file);
  }

  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    check_draft(folder, id);
    return std::make_unique<MemoryDraft>(memory_, clean_path(folder), id);
  }

  std::vector<std::string> drafts(const std::string& folder) const override {
    std::vector<std::string> ids;
    const std::scoped_lock lock(memory_->mutex);
    for (const auto& [key, files] : memory_->drafts) {
      if (key.first == clean_path(folder)) ids.push_back(key.second);
    }
    return ids;
  }

  std::vector<DraftName> drafts_in(const std::string& folder) const override {
    std::vector<DraftName> found;
    const std::scoped_lock lock(memory_->mutex);
    for (const auto& [key, files] : memory_->drafts) {
      if (parent_of(key.first) == clean_path(folder)) found.push_back({join(folder, name_of(key.first)), key.second});
    }
    return found;
  }

  std::string full_path(const std::string& path) const override { return clean_path(path); }

 private:
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
};

}  // namespace

std::shared_ptr<Storage> memory_storage() { return std::make_shared<MemoryStorage>(); }

}  // namespace sherd
