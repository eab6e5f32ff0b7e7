// A file of a disk, open for reading.

#include <fcntl.h>

#include <cerrno>

#include "storage/disk.h"
#include "storage/io_error.h"
#include "storage/read_pieces.h"

namespace sherd {
namespace {

class DiskFile final : public StoredFile {
 public:
  DiskFile(const Disk& disk, std::string path)
      : disk_(disk), path_(std::move(path)), file_(*disk_.posix, disk_.posix->open(path_, O_RDONLY)) {
    if (file_.get() < 0) throw_io_error("open", path_, file_.get());
    PathKind kind = PathKind::file;
    if (disk_.posix->kind(path_, kind) == 0 && kind == PathKind::folder) throw_io_error("open", path_, EISDIR);
    size_ = disk_.posix->size(file_.get());
    if (size_ < 0) throw_io_error("open", path_, size_);
  }

  int64_t size() const override { return size_; }

  void read(std::span<const ReadRequest> requests) const override {
    read_requests({*disk_.posix, file_.get(), path_}, requests, disk_.options.io_uring);
  }

  void expect(int64_t offset, int64_t size) const noexcept override {
    disk_.posix->start_reading(file_.get(), offset, size);
  }

 private:
  Disk disk_;
  std::string path_;
  OpenFile file_;
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<StoredFile> open_disk_file(const Disk& disk, const std::string& path) {
  return std::make_unique<DiskFile>(disk, find_on_disk(*disk.posix, path));
}

}  // namespace sherd
