#pragma once
// The parts of storage in an object store.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sherd/storage.h"
#include "storage/s3_client.h"

namespace sherd {

std::shared_ptr<Storage> s3_storage(const S3Options& options, std::shared_ptr<Http> http);

/// "a/b" of "/a//b/", "" of "/" and ".".
std::string key_of(std::string_view path);

/// Requests under way at once.
inline constexpr size_t kS3Requests = 16;
/// Calls `work` for each of `count` numbers, several at a time.
void for_each_request(size_t count, const std::function<void(size_t)>& work);

/// Where the files of a draft are before it is committed. See s3_draft.cpp.
struct S3DraftKeys {
  std::string folder;  // the key of the folder that it is to become
  std::string id;

  std::string prefix() const;
  /// A small file.
  std::string data(const std::string& name) const { return prefix() + "data/" + name; }
  /// What is known of a large one.
  std::string upload(const std::string& name) const { return prefix() + "upload/" + name; }
  /// The name of the last file, once the commit has begun.
  std::string commit() const { return prefix() + "commit"; }
  /// Where a file is after the commit.
  std::string file(const std::string& name) const {
    if (name == kItself) return folder;
    return folder.empty() ? name : folder + "/" + name;
  }
  /// Draft::kItself in keys, where "." would be taken for a folder.
  static constexpr const char* kItself = "=itself";
};

/// A large file of a draft: parts that are in the store, but no object until the commit completes it.
struct S3Upload {
  std::string id;
  std::vector<std::string> etags;  // of all parts; empty while the file is not finished
};
std::string to_text(const S3Upload& upload);
S3Upload parse_s3_upload(const std::string& text);

/// Takes from keys in a draft's folder those that are no part of what is there: while a commit goes on, or was stopped,
/// what it has put in place before its last file, and after that what was there before.
void hide_what_does_not_count(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft,
                              std::vector<std::string>& keys);

std::unique_ptr<StoredFile> open_s3_file(const std::shared_ptr<S3Client>& client, const std::string& key);
std::unique_ptr<FileWriter> create_s3_file(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft,
                                           const std::string& name, int64_t size);
std::unique_ptr<Draft> open_s3_draft(const std::shared_ptr<S3Client>& client, const S3DraftKeys& draft);

}  // namespace sherd
