#pragma once
// What a checkpoint has below a name of the state: an optimizer that has made no step has an empty dict there.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/dcp.h"
#include "sherd/state_dict.h"

namespace sherd::detail {

/// The entries of a checkpoint by name.
using Entries = std::map<std::string_view, const format::MetadataEntry*>;

/// True for a dict or a list without anything in it.
bool is_empty(const StateValue& value);

/// Where entries stood in the state that was saved, for those of which that is known.
std::map<std::string_view, const std::vector<format::PathPart>*> known_paths(const format::Metadata& metadata);

struct Filled {
  std::vector<FlatLeaf> leaves;
  std::vector<StatePath> dicts;                             // made there, with ints for keys
  std::vector<std::pair<std::string, std::string>> faults;  // name, and what does not fit
};
/// None and an empty container take whatever is stored: where that is a dict or a list, a leaf for everything below it
/// takes their place.
Filled filled_from_below(std::vector<FlatLeaf> leaves, const Entries& entries, const format::Metadata& metadata);

}  // namespace sherd::detail
