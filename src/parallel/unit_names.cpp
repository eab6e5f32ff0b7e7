#include "parallel/unit_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/errors.h"
#include "parallel/named_modules.h"

namespace sherd::detail {
namespace {

// The name of the module that owns a parameter: "blocks.0.up" of "blocks.0.up.weight".
std::string owner_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

// The shortest prefix of a module's path that `is` one; empty where none is.
template <class Is>
std::string outermost(const std::string& path, const Is& is) {
  if (path.empty()) return "";
  for (size_t dot = path.find('.');; dot = path.find('.', dot + 1)) {
    const std::string name = path.substr(0, dot);
    if (is(name)) return name;
    if (dot == std::string::npos) return "";
  }
}

// A gather of less than this is mostly waiting.
constexpr int64_t kSmall = int64_t{64} << 10;

int64_t bytes_of(const ModuleOutline& module, const std::string& owner) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : module.parameters) {
    if (owner_of(name) == owner) bytes += static_cast<int64_t>(tensor.numel() * tensor.element_size());
  }
  return bytes;
}

void check_patterns(const ModuleOutline& module, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool found = std::any_of(module.modules.begin(), module.modules.end(),
                                   [&](const std::string& name) { return name_matches(pattern, name); });
    if (found) continue;
    const size_t shown = std::min<size_t>(module.modules.size(), 8);
    const std::vector<std::string> first(module.modules.begin(),
                                         module.modules.begin() + static_cast<std::ptrdiff_t>(shown));
    throw_value_error(
        ErrorText("fully_shard", "no module has this name")
            .fact("unit", pattern)
            .fact("modules", fmt::format("{}{}", fmt::join(first, ", "), shown < module.modules.size() ? ", ..." : ""))
            .help("FullyShardOptions{.units = {\"blocks.*\"}}: names as named_modules() gives them"));
  }
}

}  // namespace

std::vector<std::string> unit_names(const ModuleOutline& module, const std::vector<std::string>& patterns) {
  check_patterns(module, patterns);
  const auto one_of = [](const std::vector<std::string>& names) {
    return [&names](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  };
  std::vector<std::string> units;
  int64_t bytes = 0;       // of the modules by themselves that stand last
  std::string last_owner;  // the last of these
  for (const NamedTensor& parameter : module.parameters) {
    const std::string owner = owner_of(parameter.name);
    std::string unit = outermost(owner, [&](const std::string& name) {
      return std::any_of(patterns.begin(), patterns.end(),
                         [&](const auto& pattern) { return name_matches(pattern, name); });
    });
    if (patterns.empty()) unit = outermost(owner, one_of(module.in_lists));
    if (patterns.empty() && unit.empty()) unit = outermost(owner, one_of(module.in_rows));
    if (!unit.empty()) {
      bytes = 0;
      units.push_back(unit);
      continue;
    }
    // A norm and the head after it are gathered together.
    const int64_t own = bytes_of(module, owner);
    const bool joins = bytes > 0 && (owner == last_owner || bytes <= kSmall || own <= kSmall);
    if (!joins || owner != last_owner) bytes = (joins ? bytes : 0) + own;
    last_owner = owner;
    units.push_back(joins ? units.back() : owner);
  }
  return units;
}

}  // namespace sherd::detail
