#pragma once
// A storage that passes everything on to another, for tests that change one of its answers.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sherd/storage.h"

namespace sherd::testing {

class PassingStorage : public Storage {
 public:
  explicit PassingStorage(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}
  std::unique_ptr<StoredFile> open(const std::string& path) const override { return storage_->open(path); }
  bool exists(const std::string& path) const override { return storage_->exists(path); }
  std::vector<std::string> list(const std::string& folder) const override { return storage_->list(folder); }
  void remove(const std::string& path) override { storage_->remove(path); }
  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    return storage_->draft(folder, id);
  }
  std::vector<std::string> drafts(const std::string& folder) const override { return storage_->drafts(folder); }
  std::vector<DraftName> drafts_in(const std::string& folder) const override { return storage_->drafts_in(folder); }
  bool replaces_whole_folders() const override { return storage_->replaces_whole_folders(); }

 private:
  const std::shared_ptr<Storage> storage_;
};

}  // namespace sherd::testing
