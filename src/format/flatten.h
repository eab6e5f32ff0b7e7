#pragma once
// A state in a pickle, leaf by leaf, by the names that checkpoints give them.

#include <string>
#include <string_view>
#include <vector>

#include "format/dcp.h"
#include "format/value.h"

namespace sherd::format {

struct FlatValue {
  std::string name;  // the parts of the path joined by dots
  std::vector<PathPart> path;
  Value value;
};

struct Flattened {
  std::vector<FlatValue> leaves;
  /// Dicts with leaves below them that have ints for keys, outer ones first: as in Metadata.
  std::vector<std::vector<PathPart>> dicts;
  std::vector<OrderedPlace> ordered;  // those with leaves below them, outer ones first
};

struct FlattenOptions {
  std::string_view source;  // for errors
  /// Values that are no tensors are left out of modules of TorchScript, which have a "training" among their attributes.
  bool script = false;
};

/// Dicts are descended into; a list is where it holds a dict or a tensor, however deep, else it is a leaf itself;
/// tuples are leaves, like everything else. Empty dicts and lists are leaves, and so
/// is a dict without tensors that has keys other than texts and ints, which names cannot keep. A Python module that was
/// pickled whole is the state dict it would give: parameters, persistent buffers and submodules. Keys other than texts
/// and ints become texts. What is no dict, list or module at all has the name "value". Throws std::invalid_argument
/// where two leaves have one name.
Flattened flatten(const Value& value, const FlattenOptions& options);

}  // namespace sherd::format
