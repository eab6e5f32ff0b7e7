#pragma once
// How one mesh axis holds a tensor. Pure values: no ranks, no tensors, no libtorch.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sherd {

/// What is done to the parts of a Partial to make the whole.
enum class ReduceOp : uint8_t { sum, avg, min, max, product, band, bor, bxor };

std::string to_string(ReduceOp op);

/// Every rank of the axis holds all of it.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// The axis cuts tensor dim `dim` as torch.chunk does: ceil(size / n) rows each, later ranks fewer or none.
/// Several axes may cut the same dim; an axis further to the right cuts what the ones before it left.
struct Shard {
  int64_t dim = 0;
  Shard() = default;
  explicit Shard(int64_t tensor_dim) : dim(tensor_dim) {}
  bool operator==(const Shard&) const = default;
};

/// The dim is first cut into `split` chunks, each of these into n, and rank i holds the i-th piece of every chunk
/// (PyTorch's _StridedShard): what an axis holds that was applied after an axis to its right.
struct StridedShard {
  int64_t dim = 0;
  int64_t split = 1;
  StridedShard() = default;
  StridedShard(int64_t tensor_dim, int64_t chunks) : dim(tensor_dim), split(chunks) {}
  bool operator==(const StridedShard&) const = default;
};

/// The dim is cut where the user says: rank i holds rows [cuts[i], cuts[i + 1]) of the global dim.
/// `cuts` ascends from 0 to the dim's size and has n + 1 entries. Where axes to the left cut the same dim, it has
/// m * n + 1 entries, m being the product of their sizes: one piece for each combination of coordinates, the
/// leftmost axis outermost; the pieces must be what those axes left.
struct Ragged {
  int64_t dim = 0;
  std::vector<int64_t> cuts;
  Ragged() = default;
  Ragged(int64_t tensor_dim, std::vector<int64_t> rows) : dim(tensor_dim), cuts(std::move(rows)) {}
  bool operator==(const Ragged&) const = default;
};

/// Every rank holds a tensor of the full size; their reduction by `op` is the value.
struct Partial {
  ReduceOp op = ReduceOp::sum;
  Partial() = default;
  explicit Partial(ReduceOp reduce) : op(reduce) {}
  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, StridedShard, Ragged, Partial>;
using Placements = std::vector<Placement>;  // one per mesh axis

inline bool is_replicate(const Placement& p) { return std::holds_alternative<Replicate>(p); }
inline bool is_partial(const Placement& p) { return std::holds_alternative<Partial>(p); }

/// True for Shard, StridedShard and Ragged.
inline bool is_shard(const Placement& p) { return !is_replicate(p) && !is_partial(p); }

/// The tensor dim that `p` cuts, or -1 where it cuts none. A negative dim is returned as it stands.
int64_t sharded_dim(const Placement& p);

/// "R", "S(0)", "S(0, split=2)", "S(0, cuts=0:3:10)", "P(sum)".
std::string to_string(const Placement& p);
/// "(S(0), R, P(sum))".
std::string to_string(const Placements& placements);

/// C++ to paste: "{Shard(0), Replicate(), Partial()}". For help lines.
std::string to_code(const Placements& placements);

/// The inverse of to_string. Spaces are free. Throws std::invalid_argument with the text and the place in it.
Placement parse_placement(std::string_view text);
Placements parse_placements(std::string_view text);

}  // namespace sherd
