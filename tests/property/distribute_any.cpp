#include "property/distribute_any.h"

namespace sherd::testing {

at::Tensor distribute_any(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  at::Tensor part = whole.detach().clone();
  const Dims here = mesh.coordinate().value_or(Dims(placements.size(), 0));
  Placements shards = placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&placements[axis]);
    if (partial == nullptr) continue;
    shards[axis] = Replicate();
    const int64_t n = mesh.size(static_cast<int64_t>(axis));
    const int64_t me = here[axis];
    if (partial->op == ReduceOp::sum) {
      // Rank i > 0 holds the constant i, rank 0 what is left.
      part = me == 0 ? part - static_cast<double>(n * (n - 1) / 2) : torch::full_like(part, static_cast<double>(me));
    } else if (partial->op == ReduceOp::max) {
      part = me == n - 1 ? part : part - static_cast<double>(me + 1);
    } else if (partial->op == ReduceOp::min) {
      part = me == n - 1 ? part : part + static_cast<double>(me + 1);
    }
  }
  const at::Tensor cut = to_local(distribute_tensor(part, mesh, shards, {.source = std::nullopt}));
  return from_local(cut, mesh, placements, {.shape = whole.sizes().vec()});
}

std::vector<Placements> all_placements(const Mesh& mesh, int64_t ndim, bool partial) {
  std::vector<Placement> one = {Replicate()};
  for (int64_t d = 0; d < ndim; ++d) one.push_back(Shard(d));
  if (partial) one.push_back(Partial());
  std::vector<Placements> all = {{}};
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& list : all) {
      for (const Placement& p : one) {
        longer.push_back(list);
        longer.back().push_back(p);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace sherd::testing
