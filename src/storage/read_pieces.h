#pragma once
// Many ranges of one file, read at once.

#include <span>
#include <string>
#include <vector>

#include "sherd/storage.h"
#include "storage/posix.h"

namespace sherd {

/// What is read, and for the texts of errors, from where.
struct FileToRead {
  Posix& posix;
  int file;
  const std::string& path;
};

/// The requests in pieces of at most `most` bytes, without the empty ones.
std::vector<ReadRequest> cut_requests(std::span<const ReadRequest> requests, size_t most);

/// One range, by as many calls of pread as it takes.
void read_piece(const FileToRead& from, ReadRequest piece);

/// By threads that call pread; by the calling thread alone where there is little to do.
void read_by_threads(const FileToRead& from, std::span<const ReadRequest> requests);

/// By io_uring. False where this build or this kernel does not have it, and nothing was read.
bool read_by_io_uring(const FileToRead& from, std::span<const ReadRequest> requests);

}  // namespace sherd
