#pragma once
// The system calls of disk storage, in one place, so that a test can fail one of them, or stop after the k-th. Each
// function returns what the call returns, or -errno; none throws. They may be called from several threads at once.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sherd {

enum class PathKind { file, folder, link };

struct FolderEntry {
  std::string name;
  PathKind kind = PathKind::file;
};

class Posix {
 public:
  virtual ~Posix() = default;

  /// Flags as for open(2); a new file may be read and written by whom the umask lets.
  virtual int open(const std::string& path, int flags);
  virtual void close(int file);
  virtual int64_t size(int file);
  virtual ssize_t pread(int file, std::span<std::byte> into, int64_t offset);
  /// Begins to read into the page cache what is not there, and does not wait for it.
  virtual int start_reading(int file, int64_t offset, int64_t size);
  virtual ssize_t pwrite(int file, std::span<const std::byte> bytes, int64_t offset);
  /// Reserves room for [0, size) without changing the size.
  virtual int reserve(int file, int64_t size);
  virtual int truncate(int file, int64_t size);
  /// Begins to write what is only in the page cache, and does not wait for it.
  virtual int start_writing(int file);
  virtual int fsync(int file);

  /// Of the path itself, not of what a link points to.
  virtual int kind(const std::string& path, PathKind& kind);
  /// In no order, without "." and "..".
  virtual int list(const std::string& folder, std::vector<FolderEntry>& entries);
  virtual int read_link(const std::string& path, std::string& target);
  virtual int mkdir(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  /// The two change places in one step. -EINVAL or -ENOSYS where the file system cannot.
  virtual int exchange(const std::string& one, const std::string& other);
  virtual int unlink(const std::string& path);
  virtual int rmdir(const std::string& path);
};

/// An open file of a Posix, closed when it goes.
class OpenFile {
 public:
  OpenFile(Posix& posix, int file) : posix_(&posix), file_(file) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (file_ >= 0) posix_->close(file_);
  }

  /// The descriptor, or -errno.
  int get() const { return file_; }

 private:
  Posix* posix_;
  int file_;
};

}  // namespace sherd
