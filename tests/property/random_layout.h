#pragma once
// Random meshes, shapes and placements for property tests. Every case follows from its seed.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "sherd/layout.h"

namespace sherd::testing {

class RandomLayout {
 public:
  explicit RandomLayout(uint64_t seed) : random_(seed) {}

  int64_t number(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool chance(int64_t percent) { return number(1, 100) <= percent; }

  /// 1 to 4 axes of size 1 to 7, at most `max_ranks` ranks; named or not, ranks in order or not.
  Mesh mesh(int64_t max_ranks) {
    const bool named = chance(70);
    std::vector<MeshAxis> axes;
    int64_t ranks = 1;
    for (int64_t a = number(1, 4); a > 0; --a) {
      const int64_t size = std::min(number(1, 7), max_ranks / ranks);
      const char* names[] = {"pp", "dp", "cp", "tp"};
      axes.push_back({named ? names[axes.size()] : "", size});
      ranks *= size;
    }
    if (chance(60)) return Mesh(std::move(axes));
    std::vector<int64_t> order(static_cast<size_t>(ranks));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i) + (chance(50) ? 0 : ranks);
    std::shuffle(order.begin(), order.end(), random_);
    return Mesh(std::move(axes), std::move(order));
  }

  /// 0 to 4 dims, sizes of 0 and 1 among them.
  Dims shape() {
    Dims shape;
    for (int64_t d = number(0, 4); d > 0; --d) {
      const int64_t kind = number(1, 20);
      shape.push_back(kind == 1 ? 0 : kind <= 3 ? 1 : kind <= 17 ? number(2, 13) : number(14, 60));
    }
    return shape;
  }

  /// Placements that checked_placements accepts.
  Placements placements(const Mesh& mesh, const Dims& shape) {
    Layout layout{mesh, shape, Placements(static_cast<size_t>(mesh.ndim()), Replicate())};
    const bool only_linear = chance(50);
    const ReduceOp op = static_cast<ReduceOp>(number(0, 7));
    // Half of the cases put every axis on one dim: the ones that are hard.
    const int64_t favourite = chance(50) && !shape.empty() ? number(0, static_cast<int64_t>(shape.size()) - 1) : -1;
    for (size_t a = 0; a < layout.placements.size(); ++a) {
      const int64_t kind = number(1, 20);
      if (kind <= 3 || (shape.empty() && kind > 6)) continue;
      if (kind <= 6) {
        layout.placements[a] = Partial(only_linear ? (chance(50) ? ReduceOp::sum : ReduceOp::avg) : op);
        continue;
      }
      const int64_t dim = favourite >= 0 ? favourite : number(0, static_cast<int64_t>(shape.size()) - 1);
      if (kind <= 11)
        layout.placements[a] = Shard(dim);
      else if (kind <= 16)
        layout.placements[a] = StridedShard(dim, number(1, 5));
      else
        layout.placements[a] = ragged(layout, a, dim);
    }
    return layout.placements;
  }

  Layout layout(int64_t max_ranks = 200) {
    Layout layout{mesh(max_ranks), shape(), {}};
    layout.placements = placements(layout.mesh, layout.shape);
    return layout;
  }

  std::mt19937_64& random() { return random_; }

 private:
  // Cuts that fit what the axes left of `axis` leave; a plain Shard where they leave no single runs.
  Placement ragged(const Layout& layout, size_t axis, int64_t dim) {
    Ragged ragged(dim, {0});
    std::vector<size_t> left;
    for (size_t a = 0; a < axis; ++a)
      if (sharded_dim(layout.placements[a]) == dim) left.push_back(a);
    Dims coordinate(layout.placements.size(), 0);
    while (true) {
      const auto runs = local_runs(layout, dim, coordinate);
      const int64_t begin = ragged.cuts.back();
      if (runs.size() > 1 || (runs.size() == 1 && runs.front().offset != begin)) return Shard(dim);
      const int64_t end = begin + (runs.empty() ? 0 : runs.front().size);
      std::vector<int64_t> inner;
      for (int64_t i = 1; i < layout.mesh.axes()[axis].size; ++i) inner.push_back(number(begin, end));
      std::sort(inner.begin(), inner.end());
      ragged.cuts.insert(ragged.cuts.end(), inner.begin(), inner.end());
      ragged.cuts.push_back(end);
      size_t i = left.size();
      while (i > 0 && ++coordinate[left[i - 1]] == layout.mesh.size(static_cast<int64_t>(left[i - 1])))
        coordinate[left[--i]] = 0;
      if (i == 0) return ragged;
    }
  }

  std::mt19937_64 random_;
};

/// How a failing case is reported.
inline std::string describe(const Layout& layout) {
  return to_string(layout.mesh) + " " + to_string(layout.shape) + " " + to_string(layout.placements);
}

/// True where the axis gives its ranks different parts.
inline bool axis_cuts(const Layout& layout, size_t axis) {
  return layout.mesh.axes()[axis].size > 1 && is_shard(layout.placements[axis]);
}

}  // namespace sherd::testing
