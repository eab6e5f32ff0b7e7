#pragma once
// Which places of a mesh hold or want some rows of a tensor, and who of those that hold the same gives them.

#include <cstdint>
#include <vector>

#include "plan/grid.h"
#include "sherd/layout.h"

namespace sherd::plan {

// A place is a coordinate along the axes that cut a tensor and -1 along the others: all ranks that hold the same.

/// The place of the rank at a coordinate.
Dims place_of(const Layout& layout, const Dims& coordinate);

/// The places that hold rows of `grid`.
std::vector<Dims> places_touched(const Layout& layout, const RunGrid& grid);

/// Calls visit(coordinate) for every rank of a place.
template <typename Visit>
void for_each_replica(const Mesh& mesh, Dims place, const Visit& visit) {
  std::vector<size_t> any;
  for (size_t axis = 0; axis < place.size(); ++axis) {
    if (place[axis] >= 0) continue;
    any.push_back(axis);
    place[axis] = 0;
  }
  while (true) {
    visit(place);
    size_t i = any.size();
    while (i > 0 && ++place[any[i - 1]] == mesh.axes()[any[i - 1]].size) place[any[--i]] = 0;
    if (i == 0) return;
  }
}

/// A rank that gets rows, and its number among those that do: those of one place of a layout have numbers that follow
/// each other.
struct Taker {
  int64_t rank = 0;
  int64_t turn = 0;
};
/// The rank at a coordinate of the layout that it wants rows of.
Taker taker_at(const Layout& to, const Dims& coordinate);

/// Of the ranks at a place, the one that gives to `taker`: itself where it is one of them, where it stands in the mesh
/// the one that stands as it does along the axes that the place leaves open, else they take turns.
int64_t giver(const Mesh& mesh, Dims place, const Taker& taker);

/// How often a rank gives an element that it has at the most, where ranks want it by `to`: each of these gets it from
/// one of those that have it, or, of a Partial, from one that has each part.
int64_t most_times_given(const Layout& from, const Layout& to);

/// Coordinates whose parts are measured: all of a small mesh, the corners of a larger one. Cheap, and enough to compare
/// plans. Where a user chose the rows of an axis, the corner is where most of them are.
std::vector<Dims> measured_places(const Mesh& mesh, int64_t exact_up_to, const Placements& from, const Placements& to);

/// Coordinates at which a plan is looked at once more, or its bytes are counted: all of a mesh of up to `most` ranks,
/// that many of a larger one.
std::vector<Dims> counted_places(const Mesh& mesh, int64_t most);

/// Whether ranks hold different numbers of rows of a dim.
bool is_uneven(const Mesh& mesh, const Dims& shape, const Placements& placements);

bool is_empty(const RunGrid& grid);

}  // namespace sherd::plan
