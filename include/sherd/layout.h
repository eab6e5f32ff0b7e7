#pragma once
// A layout: which part of a global tensor each rank of a mesh holds. Closed-form arithmetic: the cost depends on the
// number of mesh axes and tensor dims, never on the number of ranks or rows.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/box.h"
#include "sherd/mesh.h"
#include "sherd/placement.h"

namespace sherd {

struct Layout {
  Mesh mesh;
  Dims shape;  // global
  Placements placements;
  bool operator==(const Layout&) const = default;
};

/// Rows [offset, offset + size) of one dim.
struct Run {
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Run&) const = default;
};

/// The `index`-th of the `count` pieces that torch.chunk cuts `size` rows into: ceil(size / count) rows each, the last
/// ones fewer or none. An empty piece begins at `size`.
Run chunk(int64_t size, int64_t count, int64_t index);

/// Makes negative dims positive and checks everything that can be wrong with placements for a tensor of `shape` on
/// `mesh`: their number, dims out of range, a sharded scalar, a split below 1, cuts that do not fit, Partials of two
/// kinds. Throws std::invalid_argument that starts with `operation`.
Placements checked_placements(std::string_view operation, const Mesh& mesh, const Dims& shape, Placements placements);

// The functions below expect checked placements.

/// The rows of dim `dim` that the rank at `coordinate` holds, in the order in which its local tensor holds them:
/// one run, several for a StridedShard, none where the shard is empty. Empty runs are left out.
std::vector<Run> local_runs(const Layout& layout, int64_t dim, std::span<const int64_t> coordinate);

/// Who holds a row of a dim: their coordinate on the axes that cut the dim, -1 on the others.
struct Holder {
  Dims coordinate;
  int64_t local_row = 0;  // where it stands in their local tensors
  int64_t end = 0;        // the rows from it up to here follow it there, too
  bool operator==(const Holder&) const = default;
};
Holder holder_of(const Layout& layout, int64_t dim, int64_t row);

/// The row of the global dim that is row `local_row` of the local tensor at `coordinate`: the inverse of holder_of.
int64_t global_row(const Layout& layout, int64_t dim, std::span<const int64_t> coordinate, int64_t local_row);

/// The size of the local tensor of the rank at `coordinate`.
Dims local_shape(const Layout& layout, std::span<const int64_t> coordinate);

/// The offset of its first element; in a dim where the shard is empty, the dim's size (as in PyTorch).
Dims local_offset(const Layout& layout, std::span<const int64_t> coordinate);

/// The boxes of the global tensor that it holds, in row-major order of its local tensor; none where it is empty.
std::vector<Box> local_boxes(const Layout& layout, std::span<const int64_t> coordinate);

/// True when every rank holds the same rows of every dim in both layouts (same mesh and shape; Partials must be equal).
/// `S(0, split=1)` and `S(0)`, say, or any two placements on an axis of size 1. Placements that are written differently
/// are compared rank by rank along the axes that cut, up to the first difference.
bool same_boxes(const Layout& a, const Layout& b);

/// A tensor in the project's one notation: "f32[4096@dp, 1024@tp]", "f32[64, 16] P(sum)@tp",
/// "f32[64@dp@tp]" (cut by dp, then by tp), "i64[10@dp(cuts=0:3:10), 4@tp(split=2)]".
/// On meshes without names an axis is its number: "f32[64@0]".
struct TensorText {
  std::string dtype;  // "f32", as in the text; not interpreted here
  Dims shape;
  Placements placements;
  bool operator==(const TensorText&) const = default;
};
std::string to_string(const TensorText& tensor, const Mesh& mesh);
/// Throws std::invalid_argument with the text and the place in it ("mesh axis tp shards two dims" among others).
TensorText parse_tensor(std::string_view text, const Mesh& mesh);

}  // namespace sherd
