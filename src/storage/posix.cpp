#include "storage/posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sherd {
namespace {

// What the call returned, or -errno; calls that a signal interrupted are made again.
template <class Call>
auto checked(Call call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace

int Posix::open(const std::string& path, int flags) {
  return checked([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

void Posix::close(int file) { ::close(file); }

int64_t Posix::size(int file) {
  struct stat status {};
  const int result = checked([&] { return ::fstat(file, &status); });
  return result < 0 ? result : int64_t{status.st_size};
}

ssize_t Posix::pread(int file, std::span<std::byte> into, int64_t offset) {
  return checked([&] { return ::pread(file, into.data(), into.size(), offset); });
}

int Posix::start_reading(int file, int64_t offset, int64_t size) {
  constexpr int64_t kStep = int64_t{1} << 20;  // the kernel brings no more of a range than it would read ahead
  for (const int64_t end = offset + size; offset < end; offset += kStep) {
    const int64_t part = std::min(kStep, end - offset);
    // It would look at every page of the part: one byte tells for most whether they are there.
    std::byte last{};
    const iovec one{&last, 1};
    if (::preadv2(file, &one, 1, offset + part - 1, RWF_NOWAIT) == 1) continue;
    if (const int error = ::posix_fadvise(file, offset, part, POSIX_FADV_WILLNEED); error != 0) return -error;
  }
  return 0;
}

ssize_t Posix::pwrite(int file, std::span<const std::byte> bytes, int64_t offset) {
  return checked([&] { return ::pwrite(file, bytes.data(), bytes.size(), offset); });
}

int Posix::reserve(int file, int64_t size) {
  // In memory there is nothing to lay out, and pages that are taken twice, here and by the writes, cost a tenth of all
  // the time: whether there are enough is known without.
  struct statfs system {};
  if (checked([&] { return ::fstatfs(file, &system); }) == 0 && system.f_type == TMPFS_MAGIC) {
    const bool limited = system.f_blocks > 0;
    return limited && static_cast<int64_t>(system.f_bavail) < size / static_cast<int64_t>(system.f_bsize) ? -ENOSPC : 0;
  }
  return checked([&] { return ::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, size); });
}

int Posix::truncate(int file, int64_t size) {
  return checked([&] { return ::ftruncate(file, size); });
}

int Posix::start_writing(int file) {
  return checked([&] { return ::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE); });
}

int Posix::fsync(int file) {
  return checked([&] { return ::fsync(file); });
}

int Posix::kind(const std::string& path, PathKind& kind) {
  struct stat status {};
  const int result = checked([&] { return ::lstat(path.c_str(), &status); });
  if (result < 0) return result;
  kind = S_ISDIR(status.st_mode) ? PathKind::folder : S_ISLNK(status.st_mode) ? PathKind::link : PathKind::file;
  return 0;
}

int Posix::list(const std::string& folder, std::vector<FolderEntry>& entries) {
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return -errno;
  int result = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream);  // safe: nobody else has this stream
    if (entry == nullptr) {
      result = -errno;
      break;
    }
    FolderEntry found{entry->d_name};
    if (found.name == "." || found.name == "..") continue;
    // Some file systems do not say what an entry is.
    if (entry->d_type == DT_DIR) {
      found.kind = PathKind::folder;
    } else if (entry->d_type == DT_LNK) {
      found.kind = PathKind::link;
    } else if (entry->d_type == DT_UNKNOWN && kind(folder + "/" + found.name, found.kind) < 0) {
      continue;  // removed meanwhile
    }
    entries.push_back(std::move(found));
  }
  ::closedir(stream);
  return result;
}

int Posix::read_link(const std::string& path, std::string& target) {
  std::array<char, 4096> text{};
  const ssize_t length = checked([&] { return ::readlink(path.c_str(), text.data(), text.size()); });
  if (length < 0) return static_cast<int>(length);
  target.assign(text.data(), static_cast<size_t>(length));
  return 0;
}

int Posix::mkdir(const std::string& path) {
  return checked([&] { return ::mkdir(path.c_str(), 0777); });
}

int Posix::rename(const std::string& from, const std::string& to) {
  return checked([&] { return ::rename(from.c_str(), to.c_str()); });
}

int Posix::exchange(const std::string& one, const std::string& other) {
  return checked([&] {
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE));
  });
}

int Posix::unlink(const std::string& path) {
  return checked([&] { return ::unlink(path.c_str()); });
}

int Posix::rmdir(const std::string& path) {
  return checked([&] { return ::rmdir(path.c_str()); });
}

}  // namespace sherd
