#pragma once
// `.metadata` of PyTorch's distributed checkpoints (docs/format.md).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "format/dtype.h"
#include "format/value.h"
#include "sherd/box.h"

namespace sherd::format {

/// Where an item lies. `file` is a place in Metadata::files, -1 where the metadata names none.
struct Place {
  int32_t file = -1;
  int32_t transforms = -1;  // a place in Metadata::transforms, -1 for none
  int64_t offset = 0;
  int64_t length = 0;
  bool operator==(const Place&) const = default;
};

/// A tensor: its chunks' numbers lie in one row, for there may be millions.
struct TensorEntry {
  DType dtype = DType::f32;
  std::string layout = "torch.strided";
  bool requires_grad = false;
  int memory_format = 0;  // 0 contiguous, 1 channels last, 2 preserve
  bool pin_memory = false;
  Dims size;
  std::vector<int64_t> numbers;  // per chunk its offsets, then its sizes
  std::vector<Place> places;     // one per chunk
  /// Of the elements in the file, where the format has one chunk whose place is that of its elements (torch.save) and
  /// they are not in row-major order; else empty.
  Dims strides;

  size_t chunk_count() const { return places.size(); }
  std::span<const int64_t> offsets(size_t i) const { return {numbers.data() + 2 * i * size.size(), size.size()}; }
  std::span<const int64_t> sizes(size_t i) const { return {numbers.data() + (2 * i + 1) * size.size(), size.size()}; }
  Box box(size_t i) const;
  void add(const Dims& offsets, const Dims& sizes, const Place& place);
  bool operator==(const TensorEntry&) const = default;
};

/// An object that is no tensor.
struct BytesEntry {
  Place place;
  bool operator==(const BytesEntry&) const = default;
};

using PathPart = std::variant<std::string, int64_t>;
/// A path in a state has no more parts: what is made of it lies as deep in one another, and pickles end there, too.
inline constexpr size_t kMostPathParts = 1000;

struct MetadataEntry {
  std::string name;
  std::variant<TensorEntry, BytesEntry> content;
  bool operator==(const MetadataEntry&) const = default;
};

/// A dict of the state that is a collections.OrderedDict, and what lies beside its items: {"_metadata": ...} of a
/// module's state_dict(), None where nothing does.
struct OrderedPlace {
  std::vector<PathPart> path;
  Value beside = {};
  bool operator==(const OrderedPlace&) const = default;
};
/// A tensor in a memory that it shares with others.
struct SharedView {
  std::string name;
  int64_t offset = 0;  // of its first element, in elements, from the same place for all of them
  Dims strides;        // in elements
  bool operator==(const SharedView&) const = default;
};

struct Metadata {
  std::vector<MetadataEntry> entries;
  /// Where each entry stood in the state: name, path. Nothing where the state was not flattened.
  std::optional<std::vector<std::pair<std::string, std::vector<PathPart>>>> paths;
  /// Dicts of the state that have ints for keys, outer ones first: where these are 0, 1, 2 ..., paths alone would make
  /// lists of them. torch does not write them down, and writes their keys as texts.
  std::vector<std::vector<PathPart>> dicts;
  /// Kinds of dicts and shared memory, which a state has and its names do not tell. For formats that have them
  /// (torch.save); torch does not write them down.
  std::vector<OrderedPlace> ordered;
  std::vector<std::vector<SharedView>> shared;
  /// Anything else that a planner put in their place, kept to be written back.
  Value other_planner_data;
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> transforms;  // "stream.zstd/1"
  std::string checkpoint_id;
  std::string save_id;
  /// The file beside these metadata that sherd wrote digests into; empty where nothing says that there is one. torch
  /// does not write it down, so that a checkpoint written over one of sherd's promises none.
  std::string manifest;
  std::string version = "1.0.0";

  int32_t file_number(const std::string& name);            // adds it where it is new; looks at the last ones first
  const MetadataEntry* find(std::string_view name) const;  // linear
  bool operator==(const Metadata&) const = default;
};

/// Throws std::invalid_argument for everything that is not a Metadata of the classes in docs/format.md, naming what was
/// found; also for chunks outside of their tensor, negative sizes, a chunk stored twice, files outside of the folder
/// ("../x").
Metadata decode_metadata(std::span<const std::byte> bytes, std::string_view source);

/// The file's bytes in pieces of about 1 MiB: a pickle of protocol 4 that torch.distributed.checkpoint reads.
void encode_metadata(const Metadata& metadata, const std::function<void(std::span<const std::byte>)>& write);

}  // namespace sherd::format
