#pragma once
// What a rank tells the others of the files that it wrote.

#include <cstdint>
#include <string>
#include <vector>

#include "format/manifest.h"

namespace sherd::detail {

/// Where an object, or an item whose place does not follow from the plan, lies in a rank's first file.
struct PlaceInFile {
  uint64_t leaf;
  int64_t offset;
  int64_t length;
  bool operator==(const PlaceInFile&) const = default;
};

struct SaveReport {
  std::vector<format::ManifestFile> files;  // none: it wrote none
  std::vector<std::string> stored_files;    // for their places
  int64_t bytes = 0;
  int64_t bytes_in_base = 0;
  std::vector<PlaceInFile> objects;
  std::vector<PlaceInFile> items;  // of compressed ones, in the order of the plan
  bool operator==(const SaveReport&) const = default;
};
std::string encode(const SaveReport& report);
/// The inverse. Throws c10::ValueError where the bytes end too early.
SaveReport decode_report(const std::string& bytes);

}  // namespace sherd::detail
