#include "parallel/named_modules.h"

#include <fnmatch.h>

#include <algorithm>

namespace sherd::detail {
namespace {

void add(std::vector<NamedModule>& list, const NamedModule& parent) {
  list.push_back(parent);
  for (const auto& child : parent.module->named_children()) {
    if (child.value()) add(list, {parent.of(child.key()), child.value().get()});
  }
}

}  // namespace

std::vector<NamedModule> modules_below(torch::nn::Module& root) {
  std::vector<NamedModule> list;
  add(list, {"", &root});
  return list;
}

bool name_matches(std::string pattern, std::string name) {
  // fnmatch keeps wildcards between the slashes of a path.
  std::replace(pattern.begin(), pattern.end(), '.', '/');
  std::replace(name.begin(), name.end(), '.', '/');
  return fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME | FNM_NOESCAPE) == 0;
}

}  // namespace sherd::detail
