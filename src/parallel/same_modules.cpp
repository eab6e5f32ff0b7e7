#include "parallel/same_modules.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/answers.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "tensor/xla.h"

namespace sherd::detail {
namespace {

std::vector<std::string> lines_of(const ModuleOutline& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* kind, const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      lines.push_back(
          fmt::format("{} {} {}{}", kind, name, dtype_name(tensor.scalar_type()), to_string(tensor.sizes().vec())));
    }
  };
  add("parameter", module.parameters);
  add("buffer", module.buffers);
  return lines;
}

// The line of `text` in which it first differs from `other`.
std::string first_difference(const std::string& text, const std::string& other) {
  size_t start = 0;
  for (size_t i = 0; i < text.size() && i < other.size() && text[i] == other[i]; ++i) {
    if (text[i] == '\n') start = i + 1;
  }
  const std::string line = text.substr(start, text.find('\n', start) - start);
  return line.empty() ? "nothing more" : line;
}

}  // namespace

void compare_modules(const char* operation, const ModuleOutline& module, const DeviceMesh& mesh,
                     const std::vector<std::string>& lines) {
  refuse_xla_mesh(operation, mesh);
  if (!mesh.coordinate() || mesh.size() == 1) return;
  std::vector<std::string> all_lines = lines_of(module);
  all_lines.insert(all_lines.end(), lines.begin(), lines.end());
  const std::string mine = fmt::format("{}\n", fmt::join(all_lines, "\n"));
  const Group group = group_of(mesh);
  const auto difference = find_difference(group, mine);
  if (!difference) return;
  const auto& [rank, text, other_rank, other_text] = *difference;
  throw_value_error(ErrorText(operation, "the ranks have different modules")
                        .fact(fmt::format("rank {}", rank), first_difference(text, other_text))
                        .fact(fmt::format("rank {}", other_rank), first_difference(other_text, text))
                        .help("build the same module, with the same options, on every rank of the mesh"));
}

}  // namespace sherd::detail
