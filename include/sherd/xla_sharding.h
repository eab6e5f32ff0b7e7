#pragma once
// The way to XLA and back: how XLA (JAX, torch_xla) writes down which device holds which part of a tensor. Pure values,
// without libtorch and without XLA. docs/xla.md shows it by example.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/box.h"
#include "sherd/layout.h"
#include "sherd/mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// XLA's HloSharding of one tensor. The ranks of a mesh are XLA's device ids.
///
/// A tiled one cuts dim d into tiles[d] tiles of ceil(size / tiles[d]) rows, the last ones fewer or none, and says
/// which device holds each. Dims of `tiles` beyond the tensor's are subgroups: devices that hold the same tile.
struct XlaSharding {
  enum class Kind : uint8_t {
    replicated,  // every device holds everything
    maximal,     // one device holds everything
    manual,      // the program cuts by itself
    unknown,     // XLA chooses
    unreduced,   // every device holds a part of the sum
    tiled,
  };
  /// What the devices of a subgroup have in common.
  enum class Subgroup : uint8_t {
    replicated,  // they hold the same
    manual,      // their program cuts further
    unreduced,   // they hold parts of a sum
  };

  Kind kind = Kind::replicated;
  Dims tiles;                       // tiled: tiles of each tensor dim, then the size of each subgroup
  std::vector<int64_t> devices;     // tiled: who holds each tile, row-major over `tiles`; maximal: the one
  std::vector<Subgroup> subgroups;  // tiled: one for each of the last dims of `tiles`

  /// The number of tensor dims that a tiled one speaks of.
  int64_t ndim() const { return static_cast<int64_t>(tiles.size()) - static_cast<int64_t>(subgroups.size()); }
  bool operator==(const XlaSharding&) const = default;
};

/// HLO's text: "{replicated}", "{maximal device=0}", "{devices=[2,2]0,3,1,2}", "{devices=[2,1,2]<=[4]
/// last_tile_dim_replicate}". The device order is written in XLA's iota form, "[4,2]<=[2,4]T(1,0)", where it has one.
std::string to_string(const XlaSharding& sharding);
/// The inverse; both ways to write a device order are read, and `metadata={...}` is not. Throws std::invalid_argument
/// with the text and the place in it, also for tuples and for texts of more than 2^20 devices.
XlaSharding parse_xla_sharding(std::string_view text);

/// The bytes of XLA's protobuf message OpSharding.
std::string to_op_sharding(const XlaSharding& sharding);
/// The inverse. Metadata and shard groups are skipped. Throws std::invalid_argument for bytes that are no OpSharding,
/// and for what XlaSharding cannot say: tuples, and the form with named axes.
XlaSharding parse_op_sharding(std::string_view bytes);

/// What a device holds of a tensor of `shape`; a box of size 0 where its tile lies beyond the end.
/// Throws std::invalid_argument where the sharding is for another ndim, does not say (manual, unknown), or gives the
/// device nothing.
Box xla_box(const XlaSharding& sharding, const Dims& shape, int64_t device);

/// The sharding under which every device holds exactly what the layout gives to the rank of its number.
/// A StridedShard is XLA's other order of axes in a dim, Partial(sum) its unreduced subgroup. Throws
/// std::invalid_argument, naming the first rank that differs, where XLA has no such sharding: it cuts a dim once, by
/// the product of the axes, so that an uneven dim cut by several axes often has other boxes; and Partial of another
/// kind.
XlaSharding xla_sharding(const Layout& layout);

/// The placements under which every rank of `mesh` holds what `sharding` gives to the device of its number: the inverse
/// of xla_sharding, up to axes of size 1, which are Replicate. A dim that DTensor's cuts cannot follow is Ragged.
/// Throws std::invalid_argument where the devices are not those of the mesh, where no axes make the tiles, and for
/// manual, unknown and (on more than one rank) maximal shardings.
Placements placements_of(const XlaSharding& sharding, const Mesh& mesh, const Dims& shape);

}  // namespace sherd
