#include "checkpoint/block_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::detail {
namespace {

using format::kBlock;

// Without digests: gaps up to this are read along with what lies around them, which is cheaper than another call.
constexpr int64_t kGap = int64_t{16} << 10;
// Runs from this size on go straight to where they belong.
constexpr int64_t kLarge = int64_t{64} << 10;
// What is read at once beyond a small run, where more such are to follow.
constexpr int64_t kAhead = int64_t{64} << 10;
constexpr size_t kWindows = 4;

}  // namespace

BlockFile::BlockFile(std::string path, std::shared_ptr<const StoredFile> file, const format::ManifestFile* digests)
    : path_(std::move(path)), file_(std::move(file)), digests_(digests), size_(file_->size()) {}

BlockFile::BlockFile(std::string path, const format::ManifestFile& digests, Open open)
    : path_(std::move(path)), digests_(&digests), open_(std::move(open)), size_(digests.length) {}

int64_t BlockFile::block_size(size_t block) const {
  return std::min(kBlock, size_ - static_cast<int64_t>(block) * kBlock);
}

void BlockFile::fetch(int64_t offset, std::span<std::byte> into, const std::string& reader) {
  if (offset < 0 || offset + static_cast<int64_t>(into.size()) > size_) {
    throw std::runtime_error(
        ErrorText("load", "a file ends too early")
            .fact("file", path_)
            .fact("bytes wanted", fmt::format("{} to {}", offset, offset + static_cast<int64_t>(into.size())))
            .fact("bytes there", fmt::to_string(size_))
            .fact("reading", reader)
            .help("another checkpoint: this file has lost its end"));
  }
  const ReadRequest request{offset, into};
  file_->read({&request, 1});
  bytes_read_ += static_cast<int64_t>(into.size());
}

void BlockFile::fetch_block(size_t block, std::span<std::byte> into, const std::string& reader) {
  const int64_t start = static_cast<int64_t>(block) * kBlock;
  if (open_) {
    const format::BlockPlace& place = digests_->places[block];
    const ReadRequest request{place.offset, into};
    open_(place)->read({&request, 1});
    bytes_read_ += static_cast<int64_t>(into.size());
  } else {
    fetch(start, into, reader);
  }
  const format::Digest found = format::digest_of(into);
  if (found == digests_->blocks[block]) return;
  throw std::runtime_error(
      ErrorText("load", "a file is damaged: its bytes are not those that were saved")
          .fact("file", path_)
          .fact("bytes", fmt::format("{} to {}", start, start + static_cast<int64_t>(into.size())))
          .fact("digest saved", format::to_string(digests_->blocks[block]))
          .fact("digest found", format::to_string(found))
          .fact("reading", reader)
          .help("another checkpoint, or LoadOptions{.verify = false} to take the bytes as they are"));
}

const BlockFile::Window& BlockFile::block_window(size_t block, const std::string& reader) {
  const int64_t start = static_cast<int64_t>(block) * kBlock;
  for (const Window& window : windows_) {
    if (window.start == start) return window;
  }
  Window window;
  if (windows_.size() == kWindows) {
    window = std::move(windows_.front());
    windows_.erase(windows_.begin());
  }
  window.start = start;
  window.size = block_size(block);
  window.bytes.resize(static_cast<size_t>(window.size));
  fetch_block(block, window.bytes, reader);
  windows_.push_back(std::move(window));
  return windows_.back();
}

void BlockFile::read_by_blocks(const FileRun& run, const std::string& reader) {
  if (run.offset < 0 || run.offset + run.size > size_) {
    std::byte nothing{};
    fetch(std::max<int64_t>(size_, run.offset), {&nothing, 1}, reader);  // says so
  }
  int64_t done = 0;
  while (done < run.size) {
    const int64_t at = run.offset + done;
    const auto block = static_cast<size_t>(at / kBlock);
    const int64_t start = static_cast<int64_t>(block) * kBlock;
    const int64_t count = std::min(start + block_size(block), run.offset + run.size) - at;
    if (count == block_size(block)) {
      fetch_block(block, {run.into + done, static_cast<size_t>(count)}, reader);
    } else {
      const Window& window = block_window(block, reader);
      std::memcpy(run.into + done, window.bytes.data() + (at - start), static_cast<size_t>(count));
    }
    done += count;
  }
}

void BlockFile::read(std::span<const FileRun> runs, const std::string& reader) {
  if (digests_ != nullptr) {
    for (const FileRun& run : runs) read_by_blocks(run, reader);
    return;
  }
  for (size_t i = 0; i < runs.size();) {
    if (runs[i].size >= kLarge) {
      for (int64_t done = 0; done < runs[i].size; done += kBlock) {
        const auto count = static_cast<size_t>(std::min(kBlock, runs[i].size - done));
        fetch(runs[i].offset + done, {runs[i].into + done, count}, reader);
      }
      ++i;
      continue;
    }
    size_t next = i + 1;
    int64_t end = runs[i].offset + runs[i].size;
    while (next < runs.size() && runs[next].size < kLarge && runs[next].offset >= end &&
           runs[next].offset - end <= kGap && runs[next].offset + runs[next].size - runs[i].offset <= kBlock) {
      end = runs[next].offset + runs[next].size;
      ++next;
    }
    if (next == i + 1) {
      fetch(runs[i].offset, {runs[i].into, static_cast<size_t>(runs[i].size)}, reader);
    } else {
      std::vector<std::byte>& bytes = windows_.empty() ? windows_.emplace_back().bytes : windows_.front().bytes;
      bytes.resize(static_cast<size_t>(end - runs[i].offset));
      windows_.front().start = runs[i].offset;
      windows_.front().size = end - runs[i].offset;
      fetch(runs[i].offset, bytes, reader);
      for (size_t j = i; j < next; ++j) {
        std::memcpy(runs[j].into, bytes.data() + (runs[j].offset - runs[i].offset), static_cast<size_t>(runs[j].size));
      }
    }
    i = next;
  }
}

void BlockFile::read_ahead(const FileRun& run, const std::string& reader) {
  if (digests_ != nullptr || run.size >= kAhead || run.offset + run.size > size_) {
    read({&run, 1}, reader);
    return;
  }
  if (windows_.empty()) windows_.emplace_back();
  Window& window = windows_.front();
  if (run.offset < window.start || run.offset + run.size > window.start + window.size) {
    window.start = run.offset;
    window.size = 0;
    window.bytes.resize(static_cast<size_t>(std::min(kAhead, size_ - run.offset)));
    fetch(run.offset, window.bytes, reader);
    window.size = static_cast<int64_t>(window.bytes.size());
  }
  std::memcpy(run.into, window.bytes.data() + (run.offset - window.start), static_cast<size_t>(run.size));
}

void FileSource::read(int64_t offset, std::span<std::byte> into) const {
  if (offset < 0 || offset + static_cast<int64_t>(into.size()) > size_) {
    throw std::runtime_error(ErrorText("load", "an item of a file ends too early")
                                 .fact("file", file_.path())
                                 .fact("item", fmt::format("bytes {} to {}", offset_, offset_ + size_))
                                 .fact("reading", reader_)
                                 .help("another checkpoint: this one is damaged"));
  }
  file_.read_ahead({offset_ + offset, static_cast<int64_t>(into.size()), into.data()}, reader_);
}

}  // namespace sherd::detail
