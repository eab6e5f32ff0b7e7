#pragma once
// Where checkpoints lie: folders of files on a disk, in memory, in an object store. A driver is a class derived from
// Storage; paths are the driver's own. Everything here may be called from several threads at once, and throws
// std::runtime_error with sherd's texts, naming the file and the bytes concerned: StorageFailure where the driver could
// not look, another where it looked and the file is missing or too short.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace sherd {

/// No permission, no file descriptor, a device that fails, a network that does not answer: nothing is known of the
/// file, which may be whole. Nobody takes a checkpoint for damaged because of it, nor removes what one may stand on.
class StorageFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes [offset, offset + into.size()) of a file, and where they go.
struct ReadRequest {
  int64_t offset = 0;
  std::span<std::byte> into;
};

/// A file open for reading. It stays the same file when another takes its name; where a driver cannot keep what was
/// there before (an object store), reading it throws then.
class StoredFile {
 public:
  virtual ~StoredFile() = default;
  virtual int64_t size() const = 0;
  /// All of them, in any order, several at a time where the driver can. Throws where the file ends too early.
  virtual void read(std::span<const ReadRequest> requests) const = 0;
  /// Bytes [offset, offset + size), one at least, are going to be read soon: a driver that can begins to bring them,
  /// and does not wait. Never throws, and may do nothing.
  virtual void expect(int64_t /*offset*/, int64_t /*size*/) const noexcept {}
};

/// A file being written. One that is not finished is as good as not there.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  /// The bytes may be used again when it returns. Ranges do not overlap; they may come in any order.
  virtual void write(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Returns when everything is where a loss of power does not reach it. Bytes never written are zeros, up to the last
  /// one written, or to the size given at first where that is more. Nothing is written after it.
  virtual void finish() = 0;
};

/// A folder that nobody sees before it is committed. Every rank opens the draft of the same folder and id, writes files
/// of its own names, and finishes them; then one of them commits.
class Draft {
 public:
  /// As the name of the only file in a draft: the path itself, for checkpoints that are one file.
  static constexpr const char* kItself = ".";

  virtual ~Draft() = default;
  /// `size`: what the file will hold, where it is known; 0 where not. Folders in the name are made. A name that was
  /// created before starts anew.
  virtual std::unique_ptr<FileWriter> create(const std::string& name, int64_t size = 0) = 0;
  /// Whether this rank sees a file of the draft that any rank finished.
  virtual bool has(const std::string& name) const = 0;
  /// Puts the draft in the folder's place, in one step; what was there is removed after it. `last` is the file without
  /// which the folder is no checkpoint: a driver that has no such step writes it last of all. Throws where `last` is
  /// not there.
  virtual void commit(const std::string& last) = 0;
  /// Removes what was written. Never throws.
  virtual void discard() noexcept = 0;
};

/// A draft as a later process finds it. `storage.draft(folder, id)->discard()` removes it.
struct DraftName {
  std::string folder;
  std::string id;
  bool operator==(const DraftName&) const = default;
};

/// Names that end in `.tmp-<id>` or `.old-<id>` are the drivers' own.
class Storage {
 public:
  virtual ~Storage() = default;

  /// Throws std::runtime_error where there is none.
  virtual std::unique_ptr<StoredFile> open(const std::string& path) const = 0;
  virtual bool exists(const std::string& path) const = 0;
  /// The names in a folder, folders among them, sorted; drafts are not listed. None where there is no such folder.
  virtual std::vector<std::string> list(const std::string& folder) const = 0;
  /// A folder that has nothing in it is one, too, where the driver knows such.
  virtual bool is_folder(const std::string& path) const { return !list(path).empty(); }
  /// A file or a folder with all that is in it; one that is not there is no error. A folder that was not removed to its
  /// end is found as a draft.
  virtual void remove(const std::string& path) = 0;

  /// Makes the draft where it is not there yet: whoever calls it first. Folders above it are made, too.
  virtual std::unique_ptr<Draft> draft(const std::string& folder, const std::string& id) = 0;
  /// The ids of drafts of this folder that were neither committed nor discarded, sorted.
  virtual std::vector<std::string> drafts(const std::string& folder) const = 0;
  /// The same for all folders that are, or would be, in this one.
  virtual std::vector<DraftName> drafts_in(const std::string& folder) const = 0;

  /// Whether a commit puts all files of a draft in place in one step. Where it does not, it puts `last` alone in place
  /// in one step, after all the others; so that these do not meet files of the folder that was there, their names have
  /// the draft's id in them, or commit throws std::invalid_argument. And a folder is then removed file by file: `last`
  /// first, by the caller.
  virtual bool replaces_whole_folders() const { return true; }

  /// The path as any process finds it, written in one way: what a checkpoint that stands on others keeps of them, and
  /// what tells whether two paths are one. As it is, where a driver does not say otherwise.
  virtual std::string full_path(const std::string& path) const { return path; }

  /// "dir/file".
  virtual std::string join(const std::string& folder, const std::string& name) const { return folder + "/" + name; }
};

struct DiskOptions {
  /// Large writes go past the page cache, which leaves it to others. Nothing: where it is faster; nowhere so far, since
  /// what goes through the cache is written out while the next bytes are made.
  std::optional<bool> direct = {};
  /// Many small reads by io_uring. Where the kernel or the build lacks it, and for large reads: threads that call
  /// pread.
  bool io_uring = true;
};

/// Empty texts are taken from the variables that AWS's own programs read.
struct S3Options {
  std::string bucket = {};
  std::string endpoint = {};  // "http://localhost:9000"; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or AWS itself
  std::string region = {};    // AWS_REGION, AWS_DEFAULT_REGION, or us-east-1
  std::string access_key = {};
  std::string secret_key = {};
  std::string session_token = {};
  /// How often a request is sent again when the store is busy or the connection breaks; the waits between double from
  /// 50 ms to 5 s.
  int retries = 8;
};

/// Folders of a file system.
std::shared_ptr<Storage> disk_storage(const DiskOptions& options = {});
/// Folders in the memory of this process: for tests, and for states that are handed from one part of a program to
/// another.
std::shared_ptr<Storage> memory_storage();
/// Folders in a bucket of S3, or of a store that speaks as it does (MinIO, Ceph and others); paths are keys. Needs
/// libcurl when it is called. See Storage::replaces_whole_folders.
std::shared_ptr<Storage> s3_storage(const S3Options& options);

}  // namespace sherd
