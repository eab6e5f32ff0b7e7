#pragma once
// safetensors: a length, a JSON header that says where each tensor lies, the tensors' elements in row-major order. A
// folder of them may have model.safetensors.index.json, and PyTorch's distributed checkpoints say in DCP_SHARDING_INFO
// which part of its tensor each one is.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/archive.h"
#include "format/dcp.h"
#include "format/dtype.h"
#include "sherd/box.h"

namespace sherd::format {

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

struct SafeTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims sizes;  // as torch has them: of F4, whose elements are half bytes, the last one is half of what the file says
  int64_t offset = 0;  // of its elements, from the file's beginning
  int64_t data_bytes() const { return numel(sizes) * size_of(dtype); }
  bool operator==(const SafeTensor&) const = default;
};

struct SafetensorsFile {
  std::vector<SafeTensor> tensors;                            // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__": texts, in the order of the file
  int64_t size = 0;                                           // of the whole file

  const SafeTensor* find(std::string_view name) const;  // linear
  const std::string* find_metadata(std::string_view name) const;
  bool operator==(const SafetensorsFile&) const = default;
};

/// The header of a file. Refused, as by the safetensors library: headers over 100 MB, that are no JSON object of the
/// known fields, names that stand twice, sizes that contradict the place, tensors that overlap, leave a hole or do not
/// end where the file ends, dtypes that are not known. Throws std::invalid_argument; `name` begins the facts.
SafetensorsFile read_safetensors(const ByteSource& source, std::string_view name);

/// Puts the tensors into the library's order (wide dtypes first, then by name), sets their offsets and the size of the
/// file, and returns what comes before the first one's elements. The elements follow in this order without gaps. Throws
/// std::invalid_argument for a dtype that the format has no name for, names that stand twice or are "__metadata__", and
/// texts that are not UTF-8. The header ends with `spaces` more than it needs.
std::string lay_out_safetensors(SafetensorsFile& file, size_t spaces = 0);

/// model.safetensors.index.json.
struct SafetensorsIndexFile {
  int64_t total_size = 0;                                  // bytes of all tensors; 0 where the file does not say
  std::vector<std::pair<std::string, std::string>> files;  // tensor, file; sorted
  bool operator==(const SafetensorsIndexFile&) const = default;
};
/// Refused: what is no such JSON, a name twice, a file outside of the folder.
SafetensorsIndexFile decode_safetensors_index(std::span<const std::byte> bytes, std::string_view source);
/// With a digest of its own bytes, which other programs skip (docs/format.md).
std::string encode_safetensors_index(const SafetensorsIndexFile& index);
/// Throws std::invalid_argument where the digest of an index that has one is not that of its bytes.
void check_safetensors_index(std::span<const std::byte> bytes, std::string_view source);

/// Where each tensor of a file begins in the whole one, by name: from DCP_SHARDING_INFO; empty where the file has none.
std::vector<std::pair<std::string, Dims>> sharding_of(const SafetensorsFile& file, std::string_view source);
/// The metadata that PyTorch's distributed checkpoints put beside the tensors.
std::vector<std::pair<std::string, std::string>> sharding_metadata(
    std::span<const std::pair<std::string, Dims>> offsets);

/// A folder's tensors as a checkpoint has them: parts of one name in several files are chunks of one tensor, whose size
/// is as far as they reach. A Place is that of the elements themselves, no archive. Refused: a chunk twice, parts of
/// different dtypes or ndims.
struct NamedSafetensors {
  std::string name;  // of the file in its folder
  SafetensorsFile file;
};
Metadata metadata_of(std::span<const NamedSafetensors> files, std::string_view folder);

}  // namespace sherd::format
