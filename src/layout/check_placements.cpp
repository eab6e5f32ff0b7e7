// Everything that can be wrong with the placements of a tensor, found before any rank acts on it.

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "layout/placement_text.h"
#include "sherd/error.h"
#include "sherd/layout.h"

namespace sherd {
namespace {

constexpr size_t kCutsInHelp = 17;  // a longer list is described, not written out

class PlacementCheck {
 public:
  PlacementCheck(std::string_view operation, const Mesh& mesh, const Dims& shape, Placements placements)
      : operation_(operation),
        mesh_(mesh),
        // Where placements fit does not depend on who stands there: the ranks of a large mesh are not copied.
        layout_{mesh.has_default_ranks() ? mesh : Mesh(mesh.axes()), shape, std::move(placements)} {}

  Placements run() {
    check_shape();
    check_count();
    for (size_t axis = 0; axis < layout_.placements.size(); ++axis) {
      Placement& p = layout_.placements[axis];
      if (is_shard(p)) check_dim(axis);
      if (std::holds_alternative<StridedShard>(p)) check_split(axis);
      if (std::holds_alternative<Ragged>(p)) check_cuts(axis);
    }
    check_partials();
    return std::move(layout_.placements);
  }

 private:
  void check_shape() const {
    for (int64_t size : layout_.shape)
      if (size < 0)
        throw std::invalid_argument(ErrorText(operation_, "a size of the shape is negative")
                                        .fact("shape", to_string(layout_.shape))
                                        .help("sizes are 0 or more"));
  }

  void check_count() const {
    const size_t given = layout_.placements.size(), needed = layout_.mesh.axes().size();
    if (given == needed) return;
    Placements right = layout_.placements;
    right.resize(needed, Replicate());
    throw std::invalid_argument(
        ErrorText(operation_, fmt::format("{} placement{} for a mesh of {} {}", given, given == 1 ? "" : "s", needed,
                                          needed == 1 ? "axis" : "axes"))
            .fact("placements", detail::brief(layout_.placements))
            .fact("mesh", to_string(mesh_))
            .help(call(right)));
  }

  void check_dim(size_t axis) {
    const int64_t ndim = static_cast<int64_t>(layout_.shape.size());
    const int64_t dim = sharded_dim(layout_.placements[axis]);
    if (ndim == 0) fail(axis, "a scalar cannot be sharded", Replicate());
    if (dim < -ndim || dim >= ndim)
      fail(axis, fmt::format("dim {} is out of range for a tensor of {} dim{}", dim, ndim, ndim == 1 ? "" : "s"),
           Shard(dim < 0 ? 0 : ndim - 1));
    if (dim < 0) std::visit([&](auto& p) { set_dim(p, dim + ndim); }, layout_.placements[axis]);
  }

  void check_split(size_t axis) const {
    const StridedShard& strided = std::get<StridedShard>(layout_.placements[axis]);
    if (strided.split < 1)
      fail(axis, fmt::format("split is {}, but must be at least 1", strided.split), Shard(strided.dim));
  }

  void check_cuts(size_t axis) const {
    const Ragged& ragged = std::get<Ragged>(layout_.placements[axis]);
    const auto& cuts = ragged.cuts;
    const int64_t size = layout_.shape[static_cast<size_t>(ragged.dim)];
    const int64_t pieces = count_pieces(axis);
    if (static_cast<int64_t>(cuts.size()) != pieces + 1)
      fail_cuts(axis, fmt::format("{} cut{} for {} piece{}, which need {}", cuts.size(), cuts.size() == 1 ? "" : "s",
                                  pieces, pieces == 1 ? "" : "s", pieces + 1));
    if (!std::is_sorted(cuts.begin(), cuts.end())) fail_cuts(axis, "the cuts do not ascend");
    if (cuts.front() != 0 || cuts.back() != size)
      fail_cuts(axis,
                fmt::format("the cuts go from {} to {}, but the dim from 0 to {}", cuts.front(), cuts.back(), size));
    check_left(axis);
  }

  // The pieces at each coordinate of the axes to the left must be what those axes leave there.
  void check_left(size_t axis) const {
    const Ragged& ragged = std::get<Ragged>(layout_.placements[axis]);
    const int64_t n = layout_.mesh.axes()[axis].size;
    const Layout left = layout_left_of(axis);
    for (int64_t i = 0; i < count_pieces(axis) / n; ++i) {
      const Dims coordinate = left_coordinate(axis, i);
      const int64_t begin = ragged.cuts[static_cast<size_t>(i * n)];
      const int64_t end = ragged.cuts[static_cast<size_t>((i + 1) * n)];
      const int64_t size = local_shape(left, coordinate)[static_cast<size_t>(ragged.dim)];
      if (size == 0 && begin == end) continue;
      const int64_t first = size == 0 ? 0 : global_row(left, ragged.dim, coordinate, 0);
      const int64_t last = size == 0 ? 0 : global_row(left, ragged.dim, coordinate, size - 1);
      if (size > 0 && size == end - begin && first == begin && last == end - 1) continue;
      throw std::invalid_argument(
          describe(axis, "the cuts do not fit what the axes to the left leave")
              .fact("coordinate", to_string(coordinate))
              .fact("the axes to the left leave",
                    size == 0 ? "no rows" : fmt::format("{} of the rows {}:{}", size, first, last + 1))
              .fact("the cuts give", fmt::format("rows {}:{}", begin, end))
              .help(cuts_help(axis)));
    }
  }

  void check_partials() const {
    const auto commutes = [](ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg; };
    const Placements& all = layout_.placements;
    const auto first = std::find_if(all.begin(), all.end(), is_partial);
    if (first == all.end()) return;
    const ReduceOp op = std::get<Partial>(*first).op;
    for (auto other = first; other != all.end(); ++other) {
      if (!is_partial(*other)) continue;
      const ReduceOp other_op = std::get<Partial>(*other).op;
      if (other_op == op || (commutes(op) && commutes(other_op))) continue;
      const auto name = [&](auto it) { return "axis " + layout_.mesh.axis_label(it - all.begin()); };
      Placements right = all;
      right[static_cast<size_t>(other - all.begin())] = *first;
      throw std::invalid_argument(ErrorText(operation_, "partials of two kinds cannot stand together")
                                      .fact(name(first), to_string(*first))
                                      .fact(name(other), to_string(*other))
                                      .help(call(right)));
    }
  }

  static void set_dim(Shard& p, int64_t dim) { p.dim = dim; }
  static void set_dim(StridedShard& p, int64_t dim) { p.dim = dim; }
  static void set_dim(Ragged& p, int64_t dim) { p.dim = dim; }
  template <class Other>
  static void set_dim(Other&, int64_t) {}

  // The pieces that the axes up to `axis` cut its dim into.
  int64_t count_pieces(size_t axis) const {
    const int64_t dim = sharded_dim(layout_.placements[axis]);
    int64_t pieces = 1;
    for (size_t a = 0; a <= axis; ++a)
      if (sharded_dim(layout_.placements[a]) == dim) pieces *= layout_.mesh.axes()[a].size;
    return pieces;
  }

  Layout layout_left_of(size_t axis) const {
    Layout left = layout_;
    for (size_t a = axis; a < left.placements.size(); ++a) left.placements[a] = Replicate();
    return left;
  }

  // The coordinate at which the axes left of `axis` that cut its dim count their i-th piece.
  Dims left_coordinate(size_t axis, int64_t i) const {
    const int64_t dim = sharded_dim(layout_.placements[axis]);
    Dims coordinate(layout_.placements.size(), 0);
    for (size_t a = axis; a-- > 0;) {
      if (sharded_dim(layout_.placements[a]) != dim) continue;
      coordinate[a] = i % layout_.mesh.axes()[a].size;
      i /= layout_.mesh.axes()[a].size;
    }
    return coordinate;
  }

  // The code that does what was meant, for a list of placements that is right.
  std::string call(const Placements& right) const {
    const auto is = [&](auto... names) { return ((operation_ == names) || ...); };
    const std::string code = to_code(right);
    if (is("redistribute", "to_local")) return fmt::format("{}(x, {})", operation_, code);
    if (is("zeros", "ones", "empty", "full", "rand", "randn", "arange"))
      return fmt::format("{}(..., mesh, {})", operation_, code);
    return fmt::format("{}(x, mesh, {})", operation_.starts_with("parse") ? "distribute_tensor" : operation_, code);
  }

  std::string call_with(size_t axis, Placement right) const {
    Placements placements = layout_.placements;
    placements[axis] = std::move(right);
    return call(placements);
  }

  // Cuts that fit: the even ones.
  std::string cuts_help(size_t axis) const {
    const int64_t dim = sharded_dim(layout_.placements[axis]), n = layout_.mesh.axes()[axis].size;
    const int64_t pieces = count_pieces(axis);
    if (pieces + 1 > static_cast<int64_t>(kCutsInHelp)) return call_with(axis, Shard(dim));
    const Layout left = layout_left_of(axis);
    Ragged right(dim, {0});
    for (int64_t i = 0; i < pieces / n; ++i) {
      const Dims coordinate = left_coordinate(axis, i);
      const int64_t begin = right.cuts.back(), size = local_shape(left, coordinate)[static_cast<size_t>(dim)];
      const bool follows = size == 0 || (global_row(left, dim, coordinate, 0) == begin &&
                                         global_row(left, dim, coordinate, size - 1) == begin + size - 1);
      if (!follows) return call_with(axis, Shard(dim));
      for (int64_t j = 0; j < n; ++j) {
        const Run piece = chunk(size, n, j);
        right.cuts.push_back(begin + piece.offset + piece.size);
      }
    }
    return call_with(axis, right);
  }

  ErrorText describe(size_t axis, std::string_view problem) const {
    return ErrorText(operation_, problem)
        .fact("placement", fmt::format("{} on axis {}", detail::brief(layout_.placements[axis]),
                                       layout_.mesh.axis_label(static_cast<int64_t>(axis))))
        .fact("mesh", to_string(mesh_))
        .fact("shape", to_string(layout_.shape));
  }

  [[noreturn]] void fail(size_t axis, std::string_view problem, Placement right) const {
    throw std::invalid_argument(describe(axis, problem).help(call_with(axis, std::move(right))));
  }

  [[noreturn]] void fail_cuts(size_t axis, std::string_view problem) const {
    throw std::invalid_argument(describe(axis, problem).help(cuts_help(axis)));
  }

  std::string_view operation_;
  const Mesh& mesh_;
  Layout layout_;
};

}  // namespace

Placements checked_placements(std::string_view operation, const Mesh& mesh, const Dims& shape, Placements placements) {
  return PlacementCheck(operation, mesh, shape, std::move(placements)).run();
}

}  // namespace sherd
