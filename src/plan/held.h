#pragma once
// What the ranks of a mesh hold between two steps of a redistribution: a placement list, or a placement list of which
// each rank has kept only some rows.

#include <vector>

#include "plan/grid.h"
#include "sherd/layout.h"

namespace sherd::plan {

/// Of what a rank holds it keeps the rows that `target` gives to its place along `axes`, wherever it stands along the
/// others; and of these, its share along the `sharers`, cut evenly in dim `dim`. Neither where the lists are empty.
/// Where rows will be kept along `later` axes, too, it has its share of what each place along them will keep.
struct Cut {
  Placements target = {};
  std::vector<int64_t> axes = {};
  std::vector<int64_t> sharers = {};
  int64_t dim = -1;
  std::vector<int64_t> later = {};
  bool empty() const { return axes.empty() && sharers.empty(); }
  bool operator==(const Cut&) const = default;
};

/// The same places, whoever stands there: what they hold does not depend on it, and a large mesh has many ranks to
/// copy.
Mesh without_ranks(const Mesh& mesh);

class Held {
 public:
  Held(const Mesh& mesh, const Dims& shape, Placements placements)
      : layout_{without_ranks(mesh), shape, std::move(placements)} {}

  /// Its mesh names no ranks.
  const Layout& layout() const { return layout_; }
  const Placements& placements() const { return layout_.placements; }
  const Cut& cut() const { return cut_; }
  void become(Placements placements, Cut cut = {});

  /// The rows of the rank at `coordinate`, in the order of its local tensor.
  RunGrid grid(const Dims& coordinate) const;

 private:
  RunList shared(RunList runs, const Dims& coordinate) const;

  Layout layout_;
  Cut cut_;
  Layout target_;  // of the cut
};

}  // namespace sherd::plan
