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
  /// Dicts with leaves below them whose keys are the ints 0, 1, 2 ..., outer ones first: by its paths each would be a
  /// list.
  std::vector<std::vector<PathPart>> dicts;
};

struct FlattenOptions {
  std::string_view source;  // for errors
  /// Values that are no tensors are left out of modules of TorchScript, which have a "training" among their attributes.
  bool script = false;
};

/// Dicts are descended into; a list is where it holds a dict or a tensor, however deep, else it is a leaf itself;
/// tuples are leaves, like everything else. Empty dicts and lists are leaves. A Python module that was pickled whole is
/// the state dict it would give: parameters, persistent buffers and submodules. Keys other than texts and ints become
/// texts. What is no dict, list or module at all has the name "value". Throws std::invalid_argument where two leaves
/// have one name.
Flattened flatten(const Value& value, const FlattenOptions& options);

}  // namespace sherd::format
