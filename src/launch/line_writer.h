#pragma once
// The bytes that a rank prints, passed on in whole lines.

#include <string>
#include <string_view>

namespace sherd {

/// Collects bytes and writes them to a file descriptor in whole lines, each with a prefix. Several writers may share
/// a descriptor from one thread: their lines never mix.
class LineWriter {
 public:
  LineWriter(int fd, std::string prefix) : fd_(fd), prefix_(std::move(prefix)) {}

  /// Writes the lines that `bytes` completes and keeps the rest. A line longer than 1 MiB is broken there.
  /// Returns false when nobody reads the descriptor any more.
  bool write(std::string_view bytes);
  /// Writes what is left, with a line break.
  bool flush();

 private:
  int fd_;
  std::string prefix_;
  std::string partial_;
};

/// Writes all of `bytes`, also where the descriptor does not block. Returns false when it cannot.
bool write_all(int fd, std::string_view bytes);

}  // namespace sherd
