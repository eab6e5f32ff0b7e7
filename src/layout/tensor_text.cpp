// "f32[4096@dp, 1024@tp] P(sum)@x": a tensor in one line.

#include <fmt/format.h>

#include <algorithm>

#include "layout/placement_text.h"
#include "layout/scanner.h"
#include "sherd/layout.h"

namespace sherd {
namespace {

constexpr std::string_view kHelp =
    "f32[4096@dp, 1024@tp], f32[64@dp@tp], f32[64, 16] P(sum)@tp, i64[10@dp(cuts=0:3:10), 4@tp(split=2)]";

class TensorScan {
 public:
  TensorScan(std::string_view text, const Mesh& mesh)
      : scan_("parse_tensor", text, kHelp), mesh_(mesh), taken_(mesh.axes().size(), false) {
    tensor_.placements.resize(mesh.axes().size(), Replicate());
  }

  TensorText run() {
    tensor_.dtype = scan_.name("a dtype");
    scan_.expect('[');
    if (!scan_.accept(']')) {
      do scan_dim();
      while (scan_.accept(','));
      scan_.expect(']');
    }
    while (!scan_.at_end()) scan_partial();
    tensor_.placements = checked_placements("parse_tensor", mesh_, tensor_.shape, std::move(tensor_.placements));
    return std::move(tensor_);
  }

 private:
  void scan_dim() {
    const size_t place = scan_.place();
    const int64_t dim = static_cast<int64_t>(tensor_.shape.size());
    tensor_.shape.push_back(scan_.number("a size"));
    if (tensor_.shape.back() < 0) scan_.fail_at(place, "a size cannot be negative");
    int64_t last = -1;
    while (scan_.next_is('@')) {
      const size_t axis_place = scan_.place();
      const int64_t axis = scan_axis();
      Placement placement = Shard(dim);
      if (scan_.accept('(')) {
        placement = detail::scan_shard_option(scan_, dim);
        scan_.expect(')');
      }
      take(axis_place, axis, std::move(placement));
      if (axis < last)
        scan_.fail_at(axis_place,
                      fmt::format("axis {0} cuts before {1}: write @{0}@{1}, or @{0}(split={2})@{1} for {1} first",
                                  mesh_.axis_label(axis), mesh_.axis_label(last), mesh_.size(last)));
      last = axis;
    }
  }

  void scan_partial() {
    const Placement partial = detail::scan_partial(scan_);
    const size_t place = scan_.place();
    take(place, scan_axis(), partial);
  }

  // Reads "@dp".
  int64_t scan_axis() {
    scan_.expect('@');
    const size_t place = scan_.place();
    if (mesh_.has_names()) {
      const std::string_view name = scan_.name("the name of a mesh axis");
      if (const auto axis = mesh_.find_axis(name)) return *axis;
      scan_.fail_at(place, fmt::format("the mesh {} has no axis {}", to_string(mesh_), name));
    }
    const int64_t axis = scan_.number("the number of a mesh axis");
    if (axis < 0 || axis >= mesh_.ndim())
      scan_.fail_at(place, fmt::format("the mesh {} has no axis {}", to_string(mesh_), axis));
    return axis;
  }

  void take(size_t place, int64_t axis, Placement placement) {
    Placement& before = tensor_.placements[static_cast<size_t>(axis)];
    if (taken_[static_cast<size_t>(axis)]) {
      const char* problem = is_partial(before) && is_partial(placement)     ? "is partial twice"
                            : is_partial(placement)                         ? "both shards and is partial"
                            : sharded_dim(before) == sharded_dim(placement) ? "shards one dim twice"
                                                                            : "shards two dims";
      scan_.fail_at(place, fmt::format("mesh axis {} {}", mesh_.axis_label(axis), problem));
    }
    taken_[static_cast<size_t>(axis)] = true;
    before = std::move(placement);
  }

  detail::Scanner scan_;
  const Mesh& mesh_;
  TensorText tensor_;
  std::vector<bool> taken_;
};

}  // namespace

std::string to_string(const TensorText& tensor, const Mesh& mesh) {
  std::string text = tensor.dtype + "[";
  const auto label = [&](size_t axis) { return mesh.axis_label(static_cast<int64_t>(axis)); };
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    fmt::format_to(std::back_inserter(text), "{}{}", d ? ", " : "", tensor.shape[d]);
    for (size_t a = 0; a < tensor.placements.size(); ++a) {
      const Placement& p = tensor.placements[a];
      if (!is_shard(p) || sharded_dim(p) != static_cast<int64_t>(d)) continue;
      const std::string option = detail::shard_option_text(p);
      text.append("@").append(label(a));
      if (!option.empty()) text.append("(").append(option).append(")");
    }
  }
  text += "]";
  for (size_t a = 0; a < tensor.placements.size(); ++a)
    if (is_partial(tensor.placements[a]))
      text.append(" ").append(to_string(tensor.placements[a])).append("@" + label(a));
  return text;
}

TensorText parse_tensor(std::string_view text, const Mesh& mesh) { return TensorScan(text, mesh).run(); }

}  // namespace sherd
