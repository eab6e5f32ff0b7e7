#pragma once
// What a rank writes of a checkpoint, and what it tells the others of its files.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "format/archive.h"
#include "format/manifest.h"

namespace sherd::detail {

/// A chunk that this rank writes.
struct ItemToSave {
  size_t leaf;  // a place in AgreedState::leaves
  Dims offsets;
  format::TensorItem item;
  at::Tensor data;
};
/// An object that it writes, as torch.save's bytes.
struct ObjectToSave {
  size_t leaf;
  std::string bytes;
};

/// Where an object, or an item whose place does not follow from the plan, lies in a rank's first file.
struct PlaceInFile {
  uint64_t leaf;
  int64_t offset;
  int64_t length;
};

struct SaveReport {
  std::vector<format::ManifestFile> files;  // none: it wrote none
  std::vector<std::string> stored_files;    // for their places
  int64_t bytes = 0;
  int64_t bytes_in_base = 0;
  std::vector<PlaceInFile> objects;
  std::vector<PlaceInFile> items;  // of compressed ones, in the order of the plan
};
std::string encode(const SaveReport& report);
SaveReport decode_report(const std::string& bytes);

}  // namespace sherd::detail
