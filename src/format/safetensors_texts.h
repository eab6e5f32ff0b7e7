#pragma once
// What sherd keeps in the "__metadata__" of safetensors files, which hold tensors and texts alone: objects, where names
// stood in a nested state, and which save a file is of.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/dcp.h"

namespace sherd::format {

inline constexpr const char* kDictsKey = "sherd.dicts";      // Metadata::dicts, an array of paths
inline constexpr const char* kOrderedKey = "sherd.ordered";  // Metadata::ordered, an array of [path, what lies beside]
inline constexpr const char* kSaveIdKey = "sherd.save_id";   // the id in the manifest beside the file

struct NamedObject {
  std::string name;
  std::string archive;  // what torch.save writes of it
  bool operator==(const NamedObject&) const = default;
};
using NamedPaths = std::vector<std::pair<std::string, std::vector<PathPart>>>;

/// The texts under kObjectsKey and kPathsKey (format/object_json.h).
std::string encode_objects(const std::vector<NamedObject>& objects);
std::string encode_paths(const NamedPaths& paths);
/// The inverse, in the order of the text. Throws std::invalid_argument where it is no such JSON, deeper than 4000 or
/// has a key twice; `source` begins the facts.
std::vector<NamedObject> decode_objects(std::string_view text, std::string_view source);
NamedPaths decode_paths(std::string_view text, std::string_view source);

std::string encode_dicts(const std::vector<std::vector<PathPart>>& dicts);
std::vector<std::vector<PathPart>> decode_dicts(std::string_view text, std::string_view source);

/// What lies beside a dict is None where JSON has no form for it.
std::string encode_ordered(const std::vector<OrderedPlace>& ordered);
std::vector<OrderedPlace> decode_ordered(std::string_view text, std::string_view source);

/// Paths that say no more than the names do are not worth writing.
bool are_plain(const NamedPaths& paths);

}  // namespace sherd::format
