// A file of a disk, being written.

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include "storage/direct.h"
#include "storage/disk.h"
#include "storage/io_error.h"

namespace sherd {
namespace {

class DiskWriter final : public FileWriter {
 public:
  DiskWriter(const Disk& disk, std::string path, int64_t size)
      : disk_(disk),
        path_(std::move(path)),
        file_(*disk_.posix, disk_.posix->open(path_, O_RDWR | O_CREAT | O_TRUNC)),
        end_(size) {
    if (file_.get() < 0) throw_io_error("write", path_, file_.get());
    if (size > 0) reserve(size);
    if (disk_.options.direct.value_or(false)) direct_.emplace(*disk_.posix, path_);
  }

  ~DiskWriter() override {
    if (finished_) return;
    try {
      disk_.posix->unlink(path_);
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): a test's system calls throw; the draft is as unfinished as the file
    }
  }

  void write(int64_t offset, std::span<const std::byte> bytes) override {
    const ByteRange range{offset, offset + static_cast<int64_t>(bytes.size())};
    const auto part = [&](int64_t begin, int64_t end) {
      return bytes.subspan(static_cast<size_t>(begin - offset), static_cast<size_t>(end - begin));
    };
    if (direct_ && bytes.size() >= kPiece) {
      const ByteRange written = direct_->write(offset, bytes);
      write_cached(range.begin, part(range.begin, written.begin), range);
      write_cached(written.end, part(written.end, range.end), range);
    } else {
      write_cached(offset, bytes, range);
    }
    int64_t end = end_;
    while (end < range.end && !end_.compare_exchange_weak(end, range.end)) {
    }
  }

  void finish() override {
    const int64_t size = disk_.posix->size(file_.get());
    if (size < 0) throw_io_error("finish", path_, size);
    if (size < end_) {
      const int result = disk_.posix->truncate(file_.get(), end_);
      if (result < 0) throw_io_error("finish", path_, result, ByteRange{size, end_});
    }
    const int result = disk_.posix->fsync(file_.get());
    if (result < 0) throw_io_error("finish", path_, result, ByteRange{0, end_});
    finished_ = true;
  }

 private:
  static constexpr size_t kPiece = size_t{8} << 20;

  void write_cached(int64_t offset, std::span<const std::byte> bytes, ByteRange range) {
    while (!bytes.empty()) {
      const ssize_t count = disk_.posix->pwrite(file_.get(), bytes.first(std::min(bytes.size(), kPiece)), offset);
      if (count <= 0) throw_io_error("write", path_, count < 0 ? count : -EIO, range);
      offset += count;
      bytes = bytes.subspan(static_cast<size_t>(count));
      // The disk works while the next bytes are made; without this it begins at finish(), which takes twice as long.
      const auto size = static_cast<size_t>(count);
      const size_t before = cached_.fetch_add(size);
      if (before / kPiece != (before + size) / kPiece) disk_.posix->start_writing(file_.get());
    }
  }

  // A full disk says so before anything is written.
  void reserve(int64_t size) {
    const int result = disk_.posix->reserve(file_.get(), size);
    if (result == -ENOSPC || result == -EDQUOT || result == -EFBIG) {
      disk_.posix->unlink(path_);
      throw_io_error("write", path_, result, ByteRange{0, size});
    }
  }

  Disk disk_;
  std::string path_;
  OpenFile file_;
  std::atomic<int64_t> end_;        // of the bytes that the file has when it is finished
  std::atomic<size_t> cached_ = 0;  // bytes written through the page cache
  std::optional<DirectWriter> direct_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<FileWriter> create_disk_file(const Disk& disk, const std::string& path, int64_t size) {
  return std::make_unique<DiskWriter>(disk, path, size);
}

}  // namespace sherd
