#include "stored/file_stream.h"

#include <algorithm>

#include "format/archive.h"

namespace sherd::stored {
namespace {

using Bytes = std::span<const std::byte>;

// What fits into a core's cache, so that a checksum, a digest and the copy into the file read memory once.
constexpr size_t kPart = size_t{512} << 10;
// From here on the caller's memory is written as it is; below, bytes are gathered first.
constexpr size_t kLarge = size_t{64} << 10;

}  // namespace

FileStream::FileStream(Draft& draft, std::string name, int64_t size, const BaseBlocks* base,
                       std::function<void(int64_t)> told)
    : writer_(draft.create(stored_name(name, base != nullptr), base != nullptr ? 0 : size)),
      name_(std::move(name)),
      base_(base),
      told_(std::move(told)) {
  buffer_.reserve(base_ != nullptr ? format::kBlock : kPart);
}

std::string FileStream::stored_name(const std::string& name, bool has_base) {
  return has_base ? name + ".blocks" : name;
}

void FileStream::append(Bytes bytes) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), kPart));
    take(part);
    bytes = bytes.subspan(part.size());
  }
}

void FileStream::append(Bytes bytes, uint32_t& crc) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), kPart));
    crc = format::crc32(part, crc);
    take(part);
    bytes = bytes.subspan(part.size());
  }
}

void FileStream::align(int64_t alignment) {
  append(std::string(static_cast<size_t>((alignment - position_ % alignment) % alignment), '\0'));
}

void FileStream::take(Bytes bytes) {
  position_ += static_cast<int64_t>(bytes.size());
  if (told_) told_(static_cast<int64_t>(bytes.size()));
  if (base_ != nullptr) {
    while (!bytes.empty()) {
      const Bytes part = bytes.first(std::min(bytes.size(), static_cast<size_t>(format::kBlock) - buffer_.size()));
      buffer_.insert(buffer_.end(), part.begin(), part.end());
      if (buffer_.size() == static_cast<size_t>(format::kBlock)) close_block();
      bytes = bytes.subspan(part.size());
    }
    return;
  }
  digests_.add(bytes);
  if (bytes.size() < kLarge && buffer_.size() + bytes.size() <= kPart) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return;
  }
  flush();
  if (bytes.size() < kLarge) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return;
  }
  writer_->write(stored_, bytes);
  stored_ += static_cast<int64_t>(bytes.size());
}

void FileStream::flush() {
  if (buffer_.empty()) return;
  writer_->write(stored_, buffer_);
  stored_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

// With a base: a block is written once it is known to be new.
void FileStream::close_block() {
  if (buffer_.empty()) return;
  const format::Digest digest = format::digest_of(buffer_);
  file_.blocks.push_back(digest);
  if (const format::BlockPlace* place = base_->find(digest, static_cast<int64_t>(buffer_.size()))) {
    file_.places.push_back(*place);
    buffer_.clear();
    return;
  }
  file_.places.push_back({0, -1, stored_});
  flush();
}

FileStream::Written FileStream::finish() {
  if (base_ != nullptr) {
    close_block();
  } else {
    flush();
    file_.blocks = digests_.finish();
  }
  writer_->finish();
  file_.name = name_;
  file_.length = position_;
  return {std::move(file_), stored_};
}

}  // namespace sherd::stored
