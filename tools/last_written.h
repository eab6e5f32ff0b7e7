#pragma once
// When something on a disk was written last. Object stores do not say.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "location.h"

namespace sherd::tools {

using FileTime = std::chrono::system_clock::time_point;

/// The newest of a file, or of a folder and the files in it.
inline std::optional<FileTime> last_written(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::optional<FileTime> newest;
  const auto look = [&](const fs::path& file) {
    const auto time = fs::last_write_time(file, failed);
    if (failed) return;
    const auto system = std::chrono::time_point_cast<FileTime::duration>(std::chrono::file_clock::to_sys(time));
    if (!newest || system > *newest) newest = system;
  };
  look(path);
  for (auto at = fs::recursive_directory_iterator(path, failed); !failed && at != fs::end(at); at.increment(failed)) {
    look(at->path());
  }
  return newest;
}

}  // namespace sherd::tools
