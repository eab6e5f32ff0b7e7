#include "storage/s3.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <utility>

#include "sherd/error.h"
#include "storage/in_threads.h"
#include "storage/io_error.h"
#include "storage/paths.h"

namespace sherd {
namespace {

class S3Storage final : public Storage {
 public:
  S3Storage(const S3Options& options, std::shared_ptr<Http> http)
      : client_(std::make_shared<S3Client>(options, std::move(http))) {}

  std::unique_ptr<StoredFile> open(const std::string& path) const override {
    return open_s3_file(client_, key_of(path));
  }

  bool exists(const std::string& path) const override {
    const std::string key = key_of(path);
    return key.empty() || client_->head(key) || !client_->list(key + "/", "", 1).keys.empty();
  }

  bool is_folder(const std::string& path) const override { return !client_->list(prefix_of(path), "", 1).keys.empty(); }

  std::vector<std::string> list(const std::string& folder) const override {
    const std::string prefix = prefix_of(folder);
    S3Listing found;
    std::vector<std::string> ids;
    for_each_request(2, [&](size_t i) {
      if (i == 0) found = client_->list(prefix, "/");
      if (i == 1 && !prefix.empty()) ids = drafts(folder);
    });
    for (const std::string& id : ids) hide_what_does_not_count(client_, {key_of(folder), id}, found.keys);
    std::set<std::string> names;
    for (const std::string& key : found.keys) names.insert(key.substr(prefix.size()));
    for (const std::string& key : found.folders) {
      std::string name = key.substr(prefix.size(), key.size() - prefix.size() - 1);
      if (!parse_beside(name)) names.insert(std::move(name));
    }
    names.erase("");  // an object that some tools make to stand for the folder
    return {names.begin(), names.end()};
  }

  void remove(const std::string& path) override {
    const std::string key = key_of(path);
    if (key.empty()) throw std::invalid_argument(ErrorText("remove", "the path names no file or folder"));
    std::vector<std::string> keys = client_->list(key + "/").keys;
    keys.push_back(key);
    for_each_request(keys.size(), [&](size_t i) { client_->remove(keys[i]); });
  }

  std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) override {
    check_draft(folder, id);
    return open_s3_draft(client_, {key_of(folder), id});
  }

  std::vector<std::string> drafts(const std::string& folder) const override {
    std::vector<std::string> ids;
    const std::string key = key_of(folder);
    for (const BesideName& found : names_below(beside(key, Beside::draft, ""), key.rfind('/') + 1)) {
      if (found.folder == name_of(key)) ids.push_back(found.id);
    }
    std::ranges::sort(ids);
    return ids;
  }

  std::vector<DraftName> drafts_in(const std::string& folder) const override {
    std::vector<DraftName> drafts;
    const std::string prefix = prefix_of(folder);
    for (const BesideName& found : names_below(prefix, prefix.size())) {
      drafts.push_back({join(folder, found.folder), found.id});
    }
    return drafts;
  }

  bool replaces_whole_folders() const override { return false; }

  std::string full_path(const std::string& path) const override { return key_of(path); }

 private:
  static std::string prefix_of(const std::string& folder) {
    const std::string key = key_of(folder);
    return key.empty() ? "" : key + "/";
  }

  // The drafts among what begins with the prefix; their names begin at `name`.
  std::vector<BesideName> names_below(const std::string& prefix, size_t name) const {
    std::vector<BesideName> found;
    for (const std::string& key : client_->list(prefix, "/").folders) {
      std::optional<BesideName> parsed = parse_beside(std::string_view(key).substr(name, key.size() - name - 1));
      if (parsed) found.push_back(std::move(*parsed));
    }
    return found;
  }

  std::shared_ptr<S3Client> client_;
};

}  // namespace

std::string key_of(std::string_view path) {
  std::string key = clean_path(path);
  if (key.starts_with("./")) key.erase(0, 2);
  if (key.starts_with('/')) key.erase(0, 1);
  return key == "." ? "" : key;
}

void for_each_request(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  in_threads(std::min(count, kS3Requests), [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  });
}

std::shared_ptr<Storage> s3_storage(const S3Options& options, std::shared_ptr<Http> http) {
  return std::make_shared<S3Storage>(options, std::move(http));
}

std::shared_ptr<Storage> s3_storage(const S3Options& options) { return s3_storage(options, make_http()); }

}  // namespace sherd
