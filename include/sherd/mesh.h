#pragma once
// A mesh as a value: named axes and the rank that stands at each coordinate. No communication, no libtorch;
// DeviceMesh (device_mesh.h) is a Mesh whose ranks can talk.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/box.h"

namespace sherd {

struct MeshAxis {
  std::string name;  // empty where the mesh has no names
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

class Mesh {
 public:
  /// A mesh of no axes, holding rank 0.
  Mesh() = default;
  /// Ranks 0, 1, 2, ... in row-major order.
  explicit Mesh(std::vector<MeshAxis> axes);
  /// `ranks` in row-major order: one per coordinate, none twice, none negative.
  /// Throws std::invalid_argument for a bad size, a duplicate name, some names missing, or bad ranks.
  Mesh(std::vector<MeshAxis> axes, std::vector<int64_t> ranks);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t ndim() const { return static_cast<int64_t>(axes_.size()); }
  int64_t size() const { return size_; }
  int64_t size(int64_t axis) const { return axes_.at(static_cast<size_t>(axis)).size; }
  Dims shape() const;
  bool has_names() const { return !axes_.empty() && !axes_.front().name.empty(); }

  /// The position of the axis called `name`. Throws naming the axes there are.
  int64_t axis(std::string_view name) const;
  std::optional<int64_t> find_axis(std::string_view name) const;
  /// The name of an axis, or its number where the mesh has no names: how an axis is printed.
  std::string axis_label(int64_t axis) const;

  /// The rank at a coordinate.
  int64_t rank_at(std::span<const int64_t> coordinate) const;
  /// True when the ranks are 0, 1, 2, ... in row-major order.
  bool has_default_ranks() const { return ranks_.empty(); }
  /// Every rank, row-major.
  std::vector<int64_t> ranks() const;
  /// Where a rank stands, or nothing if it is not in this mesh.
  std::optional<Dims> coordinate_of(int64_t rank) const;
  /// The coordinate of the i-th place in row-major order.
  Dims coordinate_at(int64_t index) const;

  /// The sub-mesh through `rank` along the axes given, in the order given.
  Mesh slice(std::span<const int64_t> axes, int64_t rank) const;
  /// All ranks along axes [first, first + count) become one axis called `name`.
  Mesh flatten(int64_t first, int64_t count, std::string name) const;
  /// One axis becomes several. Throws where the sizes do not multiply to the axis's.
  Mesh unflatten(int64_t axis, std::vector<MeshAxis> into) const;

  /// Equality is by structure: axes (names included) and ranks.
  bool operator==(const Mesh& other) const = default;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int64_t> ranks_;  // empty where they are 0, 1, 2, ...: the common case costs nothing
  int64_t size_ = 1;
};

/// "[dp=2, tp=4]", "[2, 4]" without names; "[dp=2, tp=2]{0, 2, 4-5}" where the ranks are not 0, 1, 2, ...
std::string to_string(const Mesh& mesh);
/// The inverse of to_string. Throws std::invalid_argument with the text and the place in it.
Mesh parse_mesh(std::string_view text);

}  // namespace sherd
