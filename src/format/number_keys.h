#pragma once
// Dicts with ints for keys in the paths of `.metadata`. torch takes an int in a path for a place in a list, and writes
// the keys of dicts as texts: so does sherd, which tells beside them which dicts have ints (Metadata::dicts).

#include <string>
#include <utility>
#include <vector>

#include "format/dcp.h"

namespace sherd::format {

using StatePlaces = std::vector<std::pair<std::string, std::vector<PathPart>>>;  // name, path
using DictPaths = std::vector<std::vector<PathPart>>;

/// The places with ints that are keys of these dicts as texts. A dict that also has a text which reads as an int keeps
/// its ints: nobody could tell them apart afterwards.
StatePlaces with_text_keys(StatePlaces places, const DictPaths& dicts);
/// What with_text_keys was given, from what it returned. A dict that has an int among its keys stays as it is.
StatePlaces with_number_keys(StatePlaces places, const DictPaths& dicts);

/// Those of the dicts of which a place has an int for a key, in their order: of others with_number_keys would take
/// texts for ints.
DictPaths with_numbers_below(const StatePlaces& places, const DictPaths& dicts);

}  // namespace sherd::format
