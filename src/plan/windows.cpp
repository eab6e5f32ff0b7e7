#include "plan/windows.h"

#include <algorithm>

namespace sherd::plan {
namespace {

WantedRows reached(const PieceRows& output, const Windows& windows, int64_t size) {
  WantedRows wanted;
  for (const Rows& rows : output.rows) {
    wanted.emplace_back();
    if (rows.size() == 0) continue;
    const int64_t lead = (windows.padding + windows.stride - 1) / windows.stride;
    int64_t first = std::max<int64_t>(0, rows.begin - lead);
    // Some operators refuse fewer rows than a window has.
    while (first > 0 && size - first * windows.stride < windows.reach) --first;
    const int64_t begin = first * windows.stride;
    const int64_t end = std::max((rows.end - 1) * windows.stride - windows.padding, begin) + windows.reach;
    wanted.back().push_back({begin, std::min(size, end)});
  }
  return wanted;
}

bool is_cut(const Mesh& mesh, const Placements& placements, int64_t dim) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (sharded_dim(placements[axis]) == dim && mesh.size(static_cast<int64_t>(axis)) > 1) return true;
  }
  return false;
}

// One number for every dim; nothing where the list has neither one for all nor one for each.
std::optional<Dims> per_dim(const Dims& list, size_t dims, int64_t otherwise) {
  if (list.size() == dims) return list;
  if (list.size() > 1) return std::nullopt;
  return Dims(dims, list.empty() ? otherwise : list[0]);
}

}  // namespace

std::optional<std::vector<Windows>> windows_of(size_t dims, const WindowLists& lists) {
  const auto kernel = per_dim(lists.kernel, dims, 1);
  const auto stride = per_dim(lists.stride, dims, 1);
  const auto padding = per_dim(lists.padding, dims, 0);
  const auto dilation = per_dim(lists.dilation, dims, 1);
  if (!kernel || !stride || !padding || !dilation) return std::nullopt;
  std::vector<Windows> windows;
  for (size_t i = 0; i < dims; ++i) {
    if ((*kernel)[i] < 1 || (*stride)[i] < 1 || (*padding)[i] < 0 || (*dilation)[i] < 1) return std::nullopt;
    windows.push_back({.stride = (*stride)[i],
                       .padding = (*padding)[i],
                       .reach = (*dilation)[i] * ((*kernel)[i] - 1) + 1,
                       .hangs_over = lists.ceil_mode});
  }
  return windows;
}

int64_t Windows::count(int64_t rows) const {
  const int64_t room = rows + 2 * padding - reach + (hangs_over ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t windows = room / stride + 1;
  return hangs_over && (windows - 1) * stride >= rows + padding ? windows - 1 : windows;
}

int64_t HaloRows::skip(size_t piece, const Windows& windows) const {
  return wanted[piece].empty() ? 0 : output[piece].begin - wanted[piece][0].begin / windows.stride;
}

std::optional<WindowPlan> plan_windows(const Mesh& mesh, const WindowCall& call) {
  const int64_t spatial = call.first_spatial();
  if (spatial < 1 || call.input.size() < 3) return std::nullopt;
  Dims output_sizes = call.input;
  if (call.weight) output_sizes[1] = (*call.weight)[0];
  std::vector<int64_t> cut;
  for (size_t i = 0; i < call.windows.size(); ++i) {
    const int64_t dim = spatial + static_cast<int64_t>(i);
    int64_t& rows = output_sizes[static_cast<size_t>(dim)];
    const int64_t results = call.windows[i].count(rows);
    if (results == 0 && rows > 0) return std::nullopt;  // torch says what is wrong
    rows = results;
    if (is_cut(mesh, call.input_placements, dim)) cut.push_back(dim);
  }
  if (cut.empty()) return std::nullopt;
  const auto axes = static_cast<size_t>(mesh.ndim());
  WindowPlan plan{.input = call.input_placements,
                  .weight = Placements(axes, Replicate()),
                  .output = Placements(axes, Replicate()),
                  .output_sizes = output_sizes,
                  .halos = {}};
  for (size_t axis = 0; axis < axes; ++axis) {
    Placement& p = plan.input[axis];
    if (is_partial(p)) p = Replicate();
    const int64_t dim = sharded_dim(p);
    if (dim >= spatial) {
      plan.output[axis] = Shard(dim);
    } else if (dim >= 0 && (dim == 0 || !call.weight)) {
      plan.output[axis] = p;  // each image, and in a pool each channel, stands alone
    } else {
      p = Replicate();
      const bool channels = call.weight && !call.grouped && call.weight_placements[axis] == Placement(Shard(0));
      if (channels) {
        plan.weight[axis] = Shard(0);
        plan.output[axis] = Shard(1);
      }
    }
  }
  for (const int64_t dim : cut) {
    auto in = PieceRows::of({mesh, call.input, plan.input}, dim);
    auto out = PieceRows::of({mesh, output_sizes, plan.output}, dim);
    if (!in || !out) return std::nullopt;
    const Windows& windows = call.windows[static_cast<size_t>(dim - spatial)];
    WantedRows wanted = reached(*out, windows, call.input[static_cast<size_t>(dim)]);
    plan.halos.push_back({std::move(*in), std::move(*out), std::move(wanted)});
  }
  return plan;
}

}  // namespace sherd::plan
