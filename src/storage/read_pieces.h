#pragma once
// Many ranges of one file, read at once.

#include <span>
#include <string>

#include "sherd/storage.h"
#include "storage/posix.h"

namespace sherd {

/// What is read, and for the texts of errors, from where.
struct FileToRead {
  Posix& posix;
  int file;
  const std::string& path;
};

/// One range, by as many calls of pread as it takes.
void read_piece(const FileToRead& from, ReadRequest piece);

/// All of them. Many small ones by io_uring, where `io_uring` allows it and there is one: a disk that is asked for one
/// after the other, or by a few threads, is slow at those. Large ones by threads, which copy what is in the page cache
/// in parallel; by the calling thread alone where there is little to do.
void read_requests(const FileToRead& from, std::span<const ReadRequest> requests, bool io_uring);

void read_by_threads(const FileToRead& from, std::span<const ReadRequest> pieces);
/// False where this build or this kernel does not have it, and nothing was read.
bool read_by_io_uring(const FileToRead& from, std::span<const ReadRequest> pieces);

}  // namespace sherd
