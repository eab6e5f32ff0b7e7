#pragma once
// The names of a checkpoint as a tree: "model.layers.0.weight" lies in model, layers, 0.

#include <cstdint>
#include <string>
#include <vector>

namespace sherd::tools {

struct NamedLeaf {
  std::string name;   // whole
  std::string kind;   // "f32[4, 6]", or an object's value
  int64_t bytes = 0;  // of elements
  int64_t chunks = 0;
};

/// A line of the drawn tree.
struct TreeLine {
  std::string label;  // with the lines that lead to it: "│  ├─ weight"
  std::string kind;   // empty for a branch
  int64_t bytes = 0;  // of all below it
  int64_t chunks = 0;
  int64_t leaves = 0;  // below a branch
};

/// Lines in the order of the names, numbers by value. Branches that have one branch alone are one line
/// ("model.layers"). Numbered neighbours whose leaves are alike, kinds too, are drawn once, as "0..31", unless `all`.
std::vector<TreeLine> draw_tree(const std::vector<NamedLeaf>& leaves, bool all);

}  // namespace sherd::tools
