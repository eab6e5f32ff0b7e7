#include "storage/direct.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace sherd {
namespace {

constexpr int64_t kBlock = 4096;  // of every disk in use, or a multiple of its blocks
constexpr int64_t kBuffer = int64_t{4} << 20;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

DirectWriter::DirectWriter(Posix& posix, const std::string& path)
    : posix_(posix), file_(posix, posix.open(path, O_WRONLY | O_DIRECT)), works_(file_.get() >= 0) {}

ByteRange DirectWriter::write(int64_t offset, std::span<const std::byte> bytes) {
  ByteRange written{(offset + kBlock - 1) / kBlock * kBlock, 0};
  written.end = written.begin;
  const int64_t end = (offset + static_cast<int64_t>(bytes.size())) / kBlock * kBlock;
  if (end <= written.begin || !works_) return written;
  // Disks take what lies at a block's border in memory, too.
  const std::unique_ptr<std::byte, Free> buffer(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBuffer)));
  while (buffer && written.end < end) {
    const auto size = static_cast<size_t>(std::min(end - written.end, kBuffer));
    std::memcpy(buffer.get(), bytes.data() + (written.end - offset), size);
    const ssize_t count = posix_.pwrite(file_.get(), {buffer.get(), size}, written.end);
    if (count < kBlock) {
      works_ = false;
      break;
    }
    written.end += count / kBlock * kBlock;
  }
  return written;
}

}  // namespace sherd
