// A draft in an object store. Objects have no folders to be renamed, but an upload in parts is no object before it is
// completed, and a small object is copied inside the store. So the files of a draft are
//
//   <folder>.tmp-<id>/upload/<name>   what is known of an upload to <folder>/<name> that is not completed
//   <folder>.tmp-<id>/data/<name>     a small file
//   <folder>.tmp-<id>/commit          the name of the last file, once the commit has begun
//
// and commit completes and copies them, the last file in the end. Before that file is there, readers have the old one,
// which names the old files: all others of the draft have names that were not in the folder. After it they have the new
// one. Every object says which draft it is from, so that whoever finds the draft later knows which of the two it is,
// and whoever lists the folder meanwhile, or after the commit was stopped, sees the files of one of them alone.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "sherd/error.h"
#include "storage/io_error.h"
#include "storage/paths.h"
#include "storage/s3.h"

namespace sherd {
namespace {

// Of the keys in a draft's folder those that do not count, where its commit has begun: the others' once the last file
// is in place, the draft's own until then.
std::vector<std::string> hidden(S3Client& client, const S3DraftKeys& draft, const std::string& last,
                                const std::vector<std::string>& keys) {
  const std::optional<S3Object> found = client.head(draft.file(last));
  const bool committed = found && found->draft == draft.id;
  std::vector<char> is_hidden(keys.size(), 0);
  for_each_request(keys.size(), [&](size_t i) {
    const std::optional<S3Object> object = client.head(keys[i]);
    is_hidden[i] = object && (object->draft == draft.id) != committed ? 1 : 0;
  });
  std::vector<std::string> result;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (is_hidden[i] != 0) result.push_back(keys[i]);
  }
  return result;
}

class S3Draft final : public Draft {
 public:
  S3Draft(std::shared_ptr<S3Client> client, S3DraftKeys keys) : client_(std::move(client)), keys_(std::move(keys)) {}

  std::unique_ptr<FileWriter> create(const std::string& name, int64_t size) override {
    if (name != kItself) check_file_name(name);
    return create_s3_file(client_, keys_, in_keys(name), size);
  }

  bool has(const std::string& name) const override {
    const std::string key = in_keys(name);
    return client_->head(keys_.data(key)).has_value() || client_->head(keys_.upload(key)).has_value();
  }

  void commit(const std::string& last_name) override {
    const std::string last = in_keys(last_name);
    const Files files = read_files();
    const std::vector<std::string> names = finished_names(files);
    if (std::ranges::find(names, last) == names.end()) throw_incomplete_draft(client_->name(keys_.folder), last_name);
    std::vector<std::string> before = client_->list(keys_.file("")).keys;
    refuse_replacements(names, before, last);
    before.push_back(keys_.folder);  // where the path was a file

    client_->put(keys_.commit(), std::as_bytes(std::span(last)), keys_.id);
    for_each_request(names.size(), [&](size_t i) {
      if (names[i] != last) put_in_place(files, names[i]);
    });
    put_in_place(files, last);
    try {
      remove_others(names, before);
      remove_draft(files);
    } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): it is committed; drafts() lists the rest
    }
  }

  void discard() noexcept override {
    try {
      const Files files = read_files();
      if (files.last) {
        // Committed: what the commit did not come to remove. Not committed: what it had put in place. The records do
        // not tell, since they may be gone in part; every object says where it is from.
        const auto keys = hidden(*client_, keys_, *files.last, client_->list(keys_.file("")).keys);
        for_each_request(keys.size(), [&](size_t i) { client_->remove(keys[i]); });
      }
      remove_draft(files);
    } catch (...) {  // NOLINT(bugprone-empty-catch): what is left is a stale draft, which the next one finds
    }
  }

 private:
  struct Files {
    std::vector<std::string> keys;                          // everything of the draft
    std::set<std::string> data;                             // names
    std::vector<std::pair<std::string, S3Upload>> uploads;  // by name
    std::optional<std::string> last;                        // once the commit has begun
  };

  static std::string in_keys(const std::string& name) { return name == kItself ? S3DraftKeys::kItself : name; }

  Files read_files() {
    Files files;
    files.keys = client_->list(keys_.prefix()).keys;
    for (const std::string& key : files.keys) {
      if (key.starts_with(keys_.data(""))) files.data.insert(key.substr(keys_.data("").size()));
      if (key.starts_with(keys_.upload("")))
        files.uploads.emplace_back(key.substr(keys_.upload("").size()), S3Upload{});
      if (key == keys_.commit()) files.last = client_->get(key);
    }
    for_each_request(files.uploads.size(), [&](size_t i) {
      auto& [name, upload] = files.uploads[i];
      upload = parse_s3_upload(client_->get(keys_.upload(name)));
    });
    return files;
  }

  static std::vector<std::string> finished_names(const Files& files) {
    std::vector<std::string> names(files.data.begin(), files.data.end());
    for (const auto& [name, upload] : files.uploads) {
      if (!upload.etags.empty()) names.push_back(name);
    }
    return names;
  }

  void refuse_replacements(const std::vector<std::string>& names, const std::vector<std::string>& before,
                           const std::string& last) {
    const std::set<std::string> there(before.begin(), before.end());
    for (const std::string& name : names) {
      if (name == last || !there.contains(keys_.file(name))) continue;
      const std::optional<S3Object> found = client_->head(keys_.file(name));
      if (!found || found->draft == keys_.id) continue;  // of a commit that was begun before
      throw std::invalid_argument(
          ErrorText("commit", "a file of the draft would take the place of another before the last one does")
              .fact("file", client_->name(keys_.file(name)))
              .fact("last", last)
              .help("put the draft's id into the names of all files but the last"));
    }
  }

  void put_in_place(const Files& files, const std::string& name) {
    if (files.data.contains(name)) return client_->copy(keys_.data(name), keys_.file(name));
    const auto found = std::ranges::find(files.uploads, name, &std::pair<std::string, S3Upload>::first);
    client_->complete_upload(keys_.file(name), found->second.id, found->second.etags, keys_.id);
  }

  void remove_others(const std::vector<std::string>& names, std::vector<std::string> keys) {
    std::set<std::string> own;
    for (const std::string& name : names) own.insert(keys_.file(name));
    std::erase_if(keys, [&](const std::string& key) { return own.contains(key); });
    for_each_request(keys.size(), [&](size_t i) { client_->remove(keys[i]); });
  }

  // The record of the commit goes last, or a stop in between would make it a draft that was never committed.
  void remove_draft(const Files& files) {
    for_each_request(files.uploads.size(), [&](size_t i) {
      const auto& [name, upload] = files.uploads[i];
      client_->abort_upload(keys_.file(name), upload.id);  // one that was completed is not there
    });
    for_each_request(files.keys.size(), [&](size_t i) {
      if (files.keys[i] != keys_.commit()) client_->remove(files.keys[i]);
    });
    client_->remove(keys_.commit());
  }

  std::shared_ptr<S3Client> client_;
  S3DraftKeys keys_;
};

}  // namespace

std::string S3DraftKeys::prefix() const { return beside(folder, Beside::draft, id) + "/"; }

std::string to_text(const S3Upload& upload) {
  return nlohmann::json{{"upload", upload.id}, {"etags", upload.etags}}.dump();
}

S3Upload parse_s3_upload(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return {json.at("upload").get<std::string>(), json.at("etags").get<std::vector<std::string>>()};
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(ErrorText("commit", "a record of an upload cannot be read").fact("reason", error.what()));
  }
}

void hide_what_does_not_count(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft,
                              std::vector<std::string>& keys) {
  const std::optional<std::string> last = client->find(draft.commit());
  if (!last) return;  // nothing of it is in the folder
  for (const std::string& key : hidden(*client, draft, *last, keys)) std::erase(keys, key);
}

std::unique_ptr<Draft> open_s3_draft(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft) {
  return std::make_unique<S3Draft>(client, draft);
}

}  // namespace sherd
