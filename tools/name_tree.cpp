#include "name_tree.h"

#include <algorithm>
#include <map>
#include <memory>

namespace sherd::tools {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b) && a.size() != b.size()) return a.size() < b.size();
    return a < b;
  }
};

struct Node {
  std::map<std::string, Node, ByNumber> below;
  const NamedLeaf* leaf = nullptr;
  int64_t bytes = 0;
  int64_t leaves = 0;
  std::string shape;  // equal for nodes that look alike
};

void add(Node& root, const NamedLeaf& leaf) {
  Node* node = &root;
  size_t at = 0;
  while (true) {
    node->bytes += leaf.bytes;
    ++node->leaves;
    if (at > leaf.name.size()) break;
    const size_t end = std::min(leaf.name.find('.', at), leaf.name.size());
    node = &node->below[leaf.name.substr(at, end - at)];
    at = end + 1;
  }
  node->leaf = &leaf;
}

void tell_shape(Node& node) {
  node.shape = node.leaf != nullptr ? node.leaf->kind + "/" + std::to_string(node.leaf->chunks) : "";
  for (auto& [name, below] : node.below) {
    tell_shape(below);
    node.shape += "{" + name + ":" + below.shape + "}";
  }
}

class Drawing {
 public:
  explicit Drawing(bool all) : all_(all) {}
  std::vector<TreeLine> lines;

  // `before`: what stands before the lines of this level.
  void draw(const Node& node, const std::string& before, bool top) {
    for (auto at = node.below.begin(); at != node.below.end();) {
      auto next = std::next(at);
      int64_t alike = 1;
      std::string label = at->first;
      while (!all_ && next != node.below.end() && is_number(at->first) && is_number(next->first) &&
             std::stol(next->first) == std::stol(at->first) + alike && next->second.shape == at->second.shape) {
        ++next;
        ++alike;
      }
      if (alike > 1) label += ".." + std::prev(next)->first;
      const bool last = next == node.below.end();
      one(at->second, label, alike, before, top ? "" : last ? "└─ " : "├─ ", top ? "" : last ? "   " : "│  ");
      at = next;
    }
  }

 private:
  void one(const Node& node, std::string label, int64_t alike, const std::string& before, const char* branch,
           const char* after) {
    const Node* shown = &node;
    while (shown->leaf == nullptr && shown->below.size() == 1 && !is_number(shown->below.begin()->first)) {
      label += "." + shown->below.begin()->first;
      shown = &shown->below.begin()->second;
    }
    TreeLine line{.label = before + branch + label,
                  .kind = {},
                  .bytes = node.bytes * alike,
                  .chunks = 0,
                  .leaves = node.leaves * alike};
    if (shown->leaf != nullptr) {
      line.kind = shown->leaf->kind;
      line.chunks = shown->leaf->chunks;
      if (shown->below.empty()) line.leaves = alike > 1 ? alike : 0;
    }
    lines.push_back(std::move(line));
    draw(*shown, before + after, false);
  }

  bool all_;
};

}  // namespace

std::vector<TreeLine> draw_tree(const std::vector<NamedLeaf>& leaves, bool all) {
  Node root;
  for (const NamedLeaf& leaf : leaves) add(root, leaf);
  tell_shape(root);
  Drawing drawing(all);
  drawing.draw(root, "", true);
  return std::move(drawing.lines);
}

}  // namespace sherd::tools
