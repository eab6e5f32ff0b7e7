#include "property/distribute_any.h"

#include <algorithm>

#include "plan/placement_lists.h"

namespace sherd::testing {
namespace {

// What rank `me` of n holds of a Partial; numbers that floats have all digits of.
at::Tensor part_of(const at::Tensor& whole, ReduceOp op, int64_t me, int64_t n) {
  const bool last = me == n - 1;
  // Rank i > 0 holds the constant i, with a fraction where there are any; rank 0 what is left.
  const double fraction = whole.is_floating_point() ? 0.5 : 0;
  const at::Scalar part = whole.is_floating_point() ? at::Scalar(static_cast<double>(me) + fraction) : at::Scalar(me);
  const double sum = static_cast<double>(n * (n - 1) / 2) + fraction * static_cast<double>(n - 1);
  const at::Scalar others = whole.is_floating_point() ? at::Scalar(sum) : at::Scalar(static_cast<int64_t>(sum));
  const bool boolean = whole.scalar_type() == torch::kBool;
  switch (op) {
    case ReduceOp::sum:
      return me == 0 ? whole - others : torch::full_like(whole, part);
    case ReduceOp::avg:
      return me == 0 ? whole * n - others : torch::full_like(whole, part);
    case ReduceOp::max:
      if (boolean) return last ? whole : torch::zeros_like(whole);
      return last ? whole : whole - (me + 1);
    case ReduceOp::min:
      if (boolean) return last ? whole : torch::ones_like(whole);
      return last ? whole : whole + (me + 1);
    case ReduceOp::product:
      return me == 0 ? whole / static_cast<double>(int64_t{1} << (n - 1)) : torch::full_like(whole, 2);
    default:
      return whole;
  }
}

// Every list with one of `choices(axis)` for each mesh axis.
template <class Choices>
std::vector<Placements> lists_of(const Mesh& mesh, const Choices& choices) {
  std::vector<Placements> all = {{}};
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& list : all) {
      for (const Placement& p : choices(axis)) {
        longer.push_back(list);
        longer.back().push_back(p);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

at::Tensor distribute_any(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  at::Tensor part = whole.detach().clone();
  const Dims here = mesh.coordinate().value_or(Dims(placements.size(), 0));
  Placements shards = placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&placements[axis]);
    if (partial == nullptr) continue;
    shards[axis] = Replicate();
    part = part_of(part, partial->op, here[axis], mesh.size(static_cast<int64_t>(axis)));
  }
  const at::Tensor cut = to_local(distribute_tensor(part, mesh, shards, {.source = std::nullopt}));
  return from_local(cut, mesh, placements, {.shape = whole.sizes().vec()});
}

std::vector<Placements> all_placements(const Mesh& mesh, int64_t ndim, bool partial) {
  std::vector<Placement> one = {Replicate()};
  for (int64_t d = 0; d < ndim; ++d) one.push_back(Shard(d));
  if (partial) one.push_back(Partial());
  return lists_of(mesh, [&](int64_t) { return one; });
}

std::vector<Placements> unusual_placements(const Mesh& mesh, const at::Tensor& tensor) {
  const Dims shape = tensor.sizes().vec();
  const auto usual = all_placements(mesh, tensor.dim(), tensor.is_floating_point());
  auto all = lists_of(mesh, [&](int64_t axis) {
    std::vector<Placement> one = {Replicate()};
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const int64_t size = tensor.size(d);
      Ragged ragged(d, std::vector<int64_t>(static_cast<size_t>(mesh.size(axis)) + 1, std::min<int64_t>(1, size)));
      ragged.cuts.front() = 0;
      ragged.cuts.back() = size;
      one.insert(one.end(), {Shard(d), StridedShard(d, 2), ragged});
    }
    one.insert(one.end(), {Partial(ReduceOp::max), Partial(ReduceOp::min)});
    if (tensor.scalar_type() != torch::kBool) one.emplace_back(Partial());
    if (tensor.is_floating_point()) one.insert(one.end(), {Partial(ReduceOp::avg), Partial(ReduceOp::product)});
    return one;
  });
  std::erase_if(all, [&](const Placements& list) {
    // What parts of two kinds make together is not said.
    std::optional<ReduceOp> op;
    for (const Placement& p : list) {
      const auto* partial = std::get_if<Partial>(&p);
      if (partial == nullptr) continue;
      if (op.value_or(partial->op) != partial->op) return true;
      op = partial->op;
    }
    return std::find(usual.begin(), usual.end(), list) != usual.end() || !plan::are_placements(mesh, shape, list);
  });
  return all;
}

}  // namespace sherd::testing
