#include "stored/block_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sherd/error.h"
#include "storage/in_threads.h"

namespace sherd::stored {
namespace {

using format::kBlock;

// Without digests: gaps up to this are read along with what lies around them, which is cheaper than another call.
constexpr int64_t kGap = int64_t{16} << 10;
// Runs from this size on go straight to where they belong.
constexpr int64_t kLarge = int64_t{64} << 10;
// What is read at once beyond a small run, where more such are to follow.
constexpr int64_t kAhead = int64_t{64} << 10;
constexpr size_t kWindows = 4;
// What lies together beyond this size a system reads ahead itself, and is slower where it is told of all of it.
constexpr int64_t kScattered = 2 * kBlock;
// Runs that lie near each other are taken apart in memory, of which there is this much.
constexpr int64_t kSpare = int64_t{8} << 20;

}  // namespace

BlockFile::BlockFile(std::string path, std::shared_ptr<const StoredFile> file, const format::ManifestFile* digests,
                     const OpenOptions& options)
    : path_(std::move(path)), file_(std::move(file)), digests_(digests), options_(options), size_(file_->size()) {}

BlockFile::BlockFile(std::string path, const format::ManifestFile& digests, Open open, const OpenOptions& options)
    : path_(std::move(path)), digests_(&digests), open_(std::move(open)), options_(options), size_(digests.length) {}

int64_t BlockFile::block_size(size_t block) const {
  return std::min(kBlock, size_ - static_cast<int64_t>(block) * kBlock);
}

void BlockFile::throw_too_short(int64_t offset, int64_t size, const std::string& reader) const {
  throw std::runtime_error(ErrorText(options_.operation, "a file ends too early")
                               .fact("file", path_)
                               .fact("bytes wanted", fmt::format("{} to {}", offset, offset + size))
                               .fact("bytes there", fmt::to_string(size_))
                               .fact("reading", reader)
                               .help("another checkpoint: this file has lost its end"));
}

void BlockFile::fetch(int64_t offset, std::span<std::byte> into, const std::string& reader) {
  const auto size = static_cast<int64_t>(into.size());
  if (offset < 0 || offset + size > size_) throw_too_short(offset, size, reader);
  const ReadRequest request{offset, into};
  file_->read({&request, 1});
  bytes_read_ += static_cast<int64_t>(into.size());
}

void BlockFile::fetch_block(size_t block, std::span<std::byte> into, const std::string& reader) {
  if (open_) {
    const ReadRequest request{digests_->places[block].offset, into};
    home_of(block).second->read({&request, 1});
    bytes_read_ += static_cast<int64_t>(into.size());
  } else {
    fetch(static_cast<int64_t>(block) * kBlock, into, reader);
  }
  check_block(block, format::digest_of(into), reader);
}

BlockFile::OpenedFile BlockFile::home_of(size_t block) {
  const std::scoped_lock lock(opening_);
  return open_(digests_->places[block]);
}

void BlockFile::check_block(size_t block, const format::Digest& found, const std::string& reader) {
  if (found == digests_->blocks[block]) return;
  const int64_t start = static_cast<int64_t>(block) * kBlock;
  const int64_t begin = open_ ? digests_->places[block].offset : start;
  ErrorText text(options_.operation, "a file is damaged: its bytes are not those that were saved");
  text.fact("file", open_ ? home_of(block).first : path_);
  text.fact("bytes", fmt::format("{} to {}", begin, begin + block_size(block)));
  if (open_) text.fact("they are", fmt::format("bytes {} to {} of {}", start, start + block_size(block), path_));
  throw std::runtime_error(text.fact("digest saved", format::to_string(digests_->blocks[block]))
                               .fact("digest found", format::to_string(found))
                               .fact("reading", reader)
                               .help(take_as_is(options_)));
}

std::span<std::byte> BlockFile::Window::begin_at(int64_t offset, int64_t count) {
  start = offset;
  size = 0;
  if (room < count) {
    bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count));
    room = count;
  }
  return {bytes.get(), static_cast<size_t>(count)};
}

const BlockFile::Window* BlockFile::find_window(int64_t start) const {
  for (const Window& window : windows_) {
    if (window.start == start) return &window;
  }
  return nullptr;
}

const BlockFile::Window& BlockFile::block_window(size_t block, const std::string& reader) {
  const int64_t start = static_cast<int64_t>(block) * kBlock;
  if (const Window* found = find_window(start)) return *found;
  Window window;
  if (windows_.size() == kWindows) {
    window = std::move(windows_.front());
    windows_.erase(windows_.begin());
  }
  fetch_block(block, window.begin_at(start, block_size(block)), reader);
  window.size = block_size(block);
  // The rest of a small item that began in the block before, whose successor is what is read now.
  if (!wanted_.empty() && window.holds(wanted_.back().run)) {
    const FileRun& rest = wanted_.back().run;
    std::memcpy(rest.into, window.at(rest.offset), static_cast<size_t>(rest.size));
    bytes_wanted_ -= rest.size;
    wanted_.pop_back();
  }
  windows_.push_back(std::move(window));
  return windows_.back();
}

void BlockFile::read_by_blocks(const FileRun& run, const std::string& reader, bool in_order) {
  if (run.offset < 0 || run.offset + run.size > size_) throw_too_short(run.offset, run.size, reader);
  int64_t done = 0;
  while (done < run.size) {
    const int64_t at = run.offset + done;
    const auto block = static_cast<size_t>(at / kBlock);
    const int64_t start = static_cast<int64_t>(block) * kBlock;
    const int64_t count = std::min(start + block_size(block), run.offset + run.size) - at;
    if (const std::byte* bytes = in_order ? bring(block) : nullptr) {
      std::memcpy(run.into + done, bytes + (at - start), static_cast<size_t>(count));
    } else if (count == block_size(block)) {
      fetch_block(block, {run.into + done, static_cast<size_t>(count)}, reader);
    } else {
      const Window& window = block_window(block, reader);
      std::memcpy(run.into + done, window.at(at), static_cast<size_t>(count));
    }
    done += count;
  }
}

void BlockFile::take_from(BlocksAtHand& blocks, int32_t number) {
  at_hand_ = &blocks;
  number_ = number;
}

const std::byte* BlockFile::bring(size_t block) {
  if (at_hand_ == nullptr) return nullptr;
  at_hand_->bring(number_, static_cast<int64_t>(block));
  return at_hand_->find(number_, static_cast<int64_t>(block));
}

void BlockFile::read_block(int64_t block, std::span<std::byte> into, const std::string& reader) {
  const auto number = static_cast<size_t>(block);
  fetch_block(number, into.first(static_cast<size_t>(block_size(number))), reader);
}

void BlockFile::expect(int64_t offset, int64_t size) noexcept {
  size = std::min(size, size_ - offset);
  if (file_ != nullptr && offset >= 0 && size > 0) file_->expect(offset, size);
}

void BlockFile::read(std::span<const FileRun> runs, const std::string& reader) {
  if (digests_ != nullptr) {
    if (at_hand_ != nullptr) read_wanted();  // which come before these
    for (const FileRun& run : runs) read_by_blocks(run, reader, /*in_order=*/true);
    return;
  }
  std::vector<Wanted> all;
  for (const FileRun& run : runs) {
    if (run.offset < 0 || run.offset + run.size > size_) throw_too_short(run.offset, run.size, reader);
    if (run.size > 0) all.push_back({run, &reader, nullptr});
  }
  read_as_they_are(std::move(all));
}

void BlockFile::read_ahead(const FileRun& run, const std::string& reader) {
  if (digests_ != nullptr) {
    read_by_blocks(run, reader, /*in_order=*/false);
    return;
  }
  if (run.size >= kAhead || run.offset + run.size > size_) {
    read({&run, 1}, reader);
    return;
  }
  if (windows_.empty()) windows_.emplace_back();
  Window& window = windows_.front();
  if (!window.holds(run)) {
    const int64_t size = std::min(kAhead, size_ - run.offset);
    fetch(run.offset, window.begin_at(run.offset, size), reader);
    window.size = size;
  }
  std::memcpy(run.into, window.at(run.offset), static_cast<size_t>(run.size));
}

void BlockFile::peek(const FileRun& run, const std::string& reader) {
  if (open_) {
    read_by_blocks(run, reader, /*in_order=*/false);
  } else {
    fetch(run.offset, {run.into, static_cast<size_t>(run.size)}, reader);
  }
}

void BlockFile::want(const FileRun& run, const std::string& reader, uint32_t* crc) {
  if (run.offset < 0 || run.offset + run.size > size_) throw_too_short(run.offset, run.size, reader);
  if (run.size == 0) return;
  if (digests_ != nullptr) {
    const Window* const window = find_window(run.offset / kBlock * kBlock);
    const int64_t there = window == nullptr ? 0 : std::min(run.size, window->start + window->size - run.offset);
    if (there > 0) std::memcpy(run.into, window->at(run.offset), static_cast<size_t>(there));
    if (there == run.size) return;
    bytes_wanted_ += run.size - there;
    wanted_.push_back({{run.offset + there, run.size - there, run.into + there}, &reader, crc});
    return;
  }
  if (!windows_.empty() && windows_.front().holds(run)) {
    std::memcpy(run.into, windows_.front().at(run.offset), static_cast<size_t>(run.size));
    if (crc != nullptr) *crc = format::crc32({run.into, static_cast<size_t>(run.size)});
    return;
  }
  bytes_wanted_ += run.size;
  wanted_.push_back({run, &reader, crc});
}

void BlockFile::expect_wanted() noexcept {
  if (at_hand_ != nullptr || open_) return;  // others bring them, or they lie elsewhere
  int64_t begin = 0;
  int64_t end = 0;
  const auto tell = [&] {
    if (end - begin <= kScattered) expect(begin, end - begin);
  };
  for (const Wanted& each : wanted_) {
    int64_t from = each.run.offset;
    int64_t to = from + each.run.size;
    if (digests_ != nullptr) {
      from = from / kBlock * kBlock;
      to = (to + kBlock - 1) / kBlock * kBlock;
    }
    if (from < begin || from > end + kGap) {
      tell();
      begin = from;
      end = from;
    }
    end = std::max(end, to);
  }
  tell();
}

void BlockFile::read_wanted() {
  std::vector<Wanted> wanted = std::exchange(wanted_, {});
  bytes_wanted_ = 0;
  if (digests_ != nullptr) {
    read_compared(wanted);
  } else {
    read_as_they_are(std::move(wanted));
  }
}

// What is large in parts that threads share: runs straight to where they belong, small ones that are near each other
// through memory beside. Then the rest, some of which is beside those.
void BlockFile::read_as_they_are(std::vector<Wanted> wanted) {
  const auto in_order = [](const Wanted& a, const Wanted& b) { return a.run.offset < b.run.offset; };
  if (!std::is_sorted(wanted.begin(), wanted.end(), in_order)) {
    std::stable_sort(wanted.begin(), wanted.end(), in_order);
  }
  struct Part {
    int64_t offset;
    int64_t size;
    Together of;
    uint32_t crc = 0;
  };
  std::vector<Part> parts;
  std::vector<Together> small;
  for (size_t i = 0; i < wanted.size();) {
    const FileRun& first = wanted[i].run;
    int64_t end = first.offset + first.size;
    size_t next = i + 1;
    for (; first.size < kLarge && next < wanted.size(); ++next) {
      const FileRun& run = wanted[next].run;
      const bool near = run.offset >= end && run.offset - end <= kGap;
      if (!near || run.size >= kLarge || run.offset + run.size - first.offset > kBlock) break;
      end = run.offset + run.size;
    }
    const Together runs = std::span(wanted).subspan(i, next - i);
    if (end - first.offset < kLarge) small.push_back(runs);
    for (int64_t at = first.offset; end - first.offset >= kLarge && at < end; at += kBlock) {
      parts.push_back({at, std::min(kBlock, end - at), runs});
    }
    i = next;
  }
  // Starting a thread takes as long as reading a part of a block.
  std::atomic<size_t> next = 0;
  in_threads(std::min<size_t>(static_cast<size_t>(options_.threads), parts.size() / 4), [&] {
    Window beside;
    for (size_t i = next++; i < parts.size(); i = next++) {
      Part& part = parts[i];
      const Wanted& first = part.of.front();
      if (part.of.size() > 1) {
        fetch(part.offset, beside.begin_at(part.offset, part.size), *first.reader);
        hand_out(part.of, beside.bytes.get());
        continue;
      }
      const std::span into(first.run.into + (part.offset - first.run.offset), static_cast<size_t>(part.size));
      fetch(part.offset, into, *first.reader);
      if (first.crc != nullptr) part.crc = format::crc32(into);
    }
  });
  for (const Part& part : parts) {
    uint32_t* const crc = part.of.front().crc;
    if (part.of.size() > 1 || crc == nullptr) continue;
    const bool is_first = part.offset == part.of.front().run.offset;
    *crc = is_first ? part.crc : format::crc32_of_both(*crc, part.crc, part.size);
  }
  read_small(small);
}

// From `bytes`, which begin where the first of the runs does.
void BlockFile::hand_out(Together runs, const std::byte* bytes) {
  for (const auto& [run, reader, crc] : runs) {
    std::memcpy(run.into, bytes + (run.offset - runs.front().run.offset), static_cast<size_t>(run.size));
    if (crc != nullptr) *crc = format::crc32({run.into, static_cast<size_t>(run.size)});
  }
}

// All at once, which the storage does as it can best.
void BlockFile::read_small(std::span<const Together> all) {
  const auto size_of = [](Together runs) {
    return runs.back().run.offset + runs.back().run.size - runs.front().run.offset;
  };
  int64_t bytes = 0;
  for (const Together& runs : all) bytes += size_of(runs);
  std::vector<ReadRequest> requests;
  const auto room = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(std::min(bytes, kSpare)));
  for (size_t done = 0; done < all.size();) {
    size_t next = done;
    int64_t used = 0;
    for (requests.clear(); next < all.size() && used <= kSpare - kLarge; ++next) {
      const int64_t size = size_of(all[next]);
      requests.push_back({all[next].front().run.offset, {room.get() + used, static_cast<size_t>(size)}});
      used += size;
    }
    file_->read(requests);
    bytes_read_ += used;
    for (size_t i = done; i < next; ++i) hand_out(all[i], requests[i - done].into.data());
    done = next;
  }
}

void BlockFile::read_compared(std::span<const Wanted> wanted) {
  std::vector<Piece> pieces;
  for (const auto& [run, reader, crc] : wanted) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t at = run.offset + done;
      const int64_t begin = at % kBlock;
      const int64_t size = std::min(kBlock - begin, run.size - done);
      pieces.push_back({static_cast<size_t>(at / kBlock), begin, size, run.into + done, reader});
      done += size;
    }
  }
  const auto in_order = [](const Piece& a, const Piece& b) {
    return std::pair(a.block, a.begin) < std::pair(b.block, b.begin);
  };
  if (!std::is_sorted(pieces.begin(), pieces.end(), in_order)) std::sort(pieces.begin(), pieces.end(), in_order);
  std::vector<std::span<const Piece>> blocks;
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i + 1;
    while (end < pieces.size() && pieces[end].block == pieces[i].block) ++end;
    blocks.push_back(std::span(pieces).subspan(i, end - i));
    i = end;
  }
  for (size_t done = 0; done < blocks.size();) {
    size_t end = blocks.size();
    if (at_hand_ != nullptr) {
      const int64_t until = at_hand_->bring(number_, static_cast<int64_t>(blocks[done].front().block));
      for (end = done + 1; end < blocks.size() && static_cast<int64_t>(blocks[end].front().block) < until;) ++end;
    }
    // Starting a thread takes as long as reading a part of a block.
    const auto threads = std::min<size_t>(static_cast<size_t>(options_.threads), (end - done) / 4);
    std::atomic<size_t> next = done;
    in_threads(threads, [&] {
      std::vector<std::byte> spare;
      for (size_t i = next++; i < end; i = next++) read_pieces(blocks[i], spare);
    });
    done = end;
  }
}

// All that is wanted of one block.
void BlockFile::read_pieces(std::span<const Piece> pieces, std::vector<std::byte>& spare) {
  const size_t block = pieces.front().block;
  const int64_t size = block_size(block);
  if (const std::byte* bytes = at_hand_ != nullptr ? at_hand_->find(number_, static_cast<int64_t>(block)) : nullptr) {
    for (const Piece& piece : pieces) std::memcpy(piece.into, bytes + piece.begin, static_cast<size_t>(piece.size));
    return;
  }
  if (pieces.front().size == size && pieces.size() == 1) {
    fetch_block(block, {pieces.front().into, static_cast<size_t>(size)}, *pieces.front().reader);
    return;
  }
  if (!open_ && read_scattered(pieces, spare)) return;
  spare.resize(static_cast<size_t>(size));
  fetch_block(block, spare, *pieces.front().reader);
  for (const Piece& piece : pieces)
    std::memcpy(piece.into, spare.data() + piece.begin, static_cast<size_t>(piece.size));
}

// Where a few pieces make up most of the block, as where one tensor ends and the next one begins, each goes straight to
// its place, and what lies between them aside.
bool BlockFile::read_scattered(std::span<const Piece> pieces, std::vector<std::byte>& spare) {
  constexpr size_t kFew = 8;
  const int64_t size = block_size(pieces.front().block);
  int64_t covered = 0;
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin < end) return false;  // bytes that two want
    covered += piece.size;
    end = piece.begin + piece.size;
  }
  if (pieces.size() > kFew || covered < size / 2) return false;
  const int64_t start = static_cast<int64_t>(pieces.front().block) * kBlock;
  spare.resize(static_cast<size_t>(size));
  std::vector<ReadRequest> requests;
  const auto aside = [&](int64_t from, int64_t to) {
    if (from < to) {
      requests.push_back(
          {start + from, std::span(spare).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from))});
    }
  };
  end = 0;
  for (const Piece& piece : pieces) {
    aside(end, piece.begin);
    requests.push_back({start + piece.begin, {piece.into, static_cast<size_t>(piece.size)}});
    end = piece.begin + piece.size;
  }
  aside(end, size);
  file_->read(requests);
  bytes_read_ += size;
  format::BlockDigests digests;
  for (const ReadRequest& request : requests) digests.add(request.into);
  check_block(pieces.front().block, digests.finish().front(), *pieces.front().reader);
  return true;
}

void FileSource::read(int64_t offset, std::span<std::byte> into) const {
  if (offset < 0 || offset + static_cast<int64_t>(into.size()) > size_) {
    throw std::runtime_error(ErrorText(file_.options().operation, "an item of a file ends too early")
                                 .fact("file", file_.path())
                                 .fact("item", fmt::format("bytes {} to {}", offset_, offset_ + size_))
                                 .fact("reading", reader_)
                                 .help("another checkpoint: this one is damaged"));
  }
  file_.read_ahead({offset_ + offset, static_cast<int64_t>(into.size()), into.data()}, reader_);
}

}  // namespace sherd::stored
