#include "storage/read_pieces.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "storage/in_threads.h"
#include "storage/io_error.h"

namespace sherd {
namespace {

constexpr size_t kPiece = size_t{4} << 20;

// In pieces that threads share.
void cut(ReadRequest request, std::vector<ReadRequest>& pieces) {
  while (!request.into.empty()) {
    const size_t size = std::min(kPiece, request.into.size());
    pieces.push_back({request.offset, request.into.first(size)});
    request.offset += static_cast<int64_t>(size);
    request.into = request.into.subspan(size);
  }
}

}  // namespace

void read_piece(const FileToRead& from, ReadRequest piece) {
  const ByteRange wanted{piece.offset, piece.offset + static_cast<int64_t>(piece.into.size())};
  while (!piece.into.empty()) {
    const ssize_t count = from.posix.pread(from.file, piece.into, piece.offset);
    if (count < 0) throw_io_error("read", from.path, count, wanted);
    if (count == 0) throw_too_short(from.path, from.posix.size(from.file), wanted);
    piece.offset += count;
    piece.into = piece.into.subspan(static_cast<size_t>(count));
  }
}

void read_by_threads(const FileToRead& from, std::span<const ReadRequest> pieces) {
  constexpr size_t kPerThread = size_t{2} << 20;  // starting a thread takes as long as copying 100 KiB
  size_t total = 0;
  for (const ReadRequest& piece : pieces) total += piece.into.size();
  // Beyond one for each core, threads wait for the disk: four at least keep it busy, and 16 any disk.
  static const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 4, 16);  // which opens a file
  std::atomic<size_t> next = 0;
  in_threads(std::min({total / kPerThread, pieces.size(), most}), [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) read_piece(from, pieces[i]);
  });
}

void read_requests(const FileToRead& from, std::span<const ReadRequest> requests, bool io_uring) {
  constexpr size_t kSmall = size_t{64} << 10;  // above it, reading ahead keeps a disk busy
  constexpr size_t kMany = 64;                 // below it, making a ring takes longer than it saves
  std::vector<ReadRequest> small;
  std::vector<ReadRequest> large;
  for (const ReadRequest& request : requests) cut(request, request.into.size() < kSmall ? small : large);
  if (!io_uring || small.size() < kMany || !read_by_io_uring(from, small)) {
    large.insert(large.end(), small.begin(), small.end());
  }
  read_by_threads(from, large);
}

}  // namespace sherd
