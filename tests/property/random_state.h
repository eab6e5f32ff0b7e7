#pragma once
// Tensors of every kind over ranks, drawn from a seed that all ranks share.

#include <torch/torch.h>

#include <random>
#include <string>

#include "property/random_spec.h"
#include "sherd/sherd.h"

namespace sherd::testing {

/// What a tensor is in the end, whoever holds it: size, dtype and elements follow from `salt`.
struct DrawnTensor {
  Dims size;
  c10::ScalarType dtype;
  int64_t salt;

  at::Tensor whole() const {
    auto values = torch::arange(numel(size), torch::kLong).mul(7).add(salt).remainder(113).view(size);
    if (dtype == torch::kBool) return values.remainder(2).to(torch::kBool);
    if (c10::isComplexType(dtype))
      return torch::complex(values.to(torch::kDouble), values.to(torch::kDouble).neg()).to(dtype);
    return values.to(torch::kDouble).to(dtype);
  }
};

class StateMaker : public SpecMaker {
 public:
  StateMaker(uint32_t seed, const World& world) : SpecMaker(seed, world.size()), world_(world) {}

  /// A mesh over some of the ranks, or all.
  DeviceMesh mesh() {
    const int64_t n = world_.size();
    std::vector<Dims> shapes = {{n}, {1, n}, {n, 1}};
    if (n == 4) shapes.push_back({2, 2});
    if (n == 6) shapes.insert(shapes.end(), {{2, 3}, {3, 2}});
    return init_device_mesh("cpu", shapes[static_cast<size_t>(below(static_cast<int64_t>(shapes.size())))]);
  }

  Placements placements(const DeviceMesh& mesh, const Dims& size) {
    Placements placements;
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
      if (size.empty() || below(3) == 0) {
        placements.emplace_back(Replicate());
        continue;
      }
      const int64_t dim = below(static_cast<int64_t>(size.size()));
      const int64_t kind = below(4);
      const int64_t ranks = mesh.mesh().size(axis);
      if (kind == 0) {
        placements.emplace_back(StridedShard(dim, 1 + below(3)));
      } else if (kind == 1 && mesh.ndim() == 1) {
        std::vector<int64_t> cuts = {0};
        for (int64_t i = 1; i < ranks; ++i) cuts.push_back(below(size[static_cast<size_t>(dim)] + 1));
        cuts.push_back(size[static_cast<size_t>(dim)]);
        std::sort(cuts.begin(), cuts.end());
        placements.emplace_back(Ragged(dim, std::move(cuts)));
      } else {
        placements.emplace_back(Shard(dim));
      }
    }
    return placements;
  }

  /// The tensor in one of the kinds that there are.
  at::Tensor make(const at::Tensor& whole) {
    const Dims size = whole.sizes().vec();
    switch (below(6)) {
      case 0:
        return whole.clone();
      case 1: {
        const auto drawn = spec(size);
        return sharded::shard_tensor(whole, drawn);
      }
      case 2:
        return local_shards(whole);
      case 3:
        return nested(whole);
      default: {
        const DeviceMesh on = mesh();
        return distribute_tensor(whole, on, placements(on, size), {.source = std::nullopt});
      }
    }
  }

  /// Boxes that lie anywhere, several on a rank or none.
  at::Tensor local_shards(const at::Tensor& whole) {
    if (whole.dim() == 0) return whole.clone();
    LocalShardsOptions options{.global_size = whole.sizes().vec(), .dtype = whole.scalar_type()};
    std::vector<at::Tensor> shards;
    std::vector<Dims> offsets;
    for (const auto& box : grid(whole.sizes().vec()).build_metadata(whole.sizes().vec()).shards_metadata) {
      if (box.placement->rank != world_.rank()) continue;
      shards.push_back(part(whole, box.shard_offsets, box.shard_sizes).clone());
      offsets.push_back(box.shard_offsets);
    }
    return LocalShardsWrapper(std::move(shards), offsets, options);
  }

  /// A ShardedTensor of ShardedTensors: pairs of ranks cut rows, the ranks of a pair columns.
  at::Tensor nested(const at::Tensor& whole) {
    const int64_t pairs = world_.size() / 2;
    const bool fits = world_.size() % 2 == 0 && pairs > 1 && whole.dim() >= 2 && whole.size(0) >= pairs &&
                      whole.size(1) >= 2 && whole.numel() > 0;
    const int64_t cut = fits ? 1 + below(whole.size(1) - 1) : 0;
    if (!fits) return whole.clone();
    const int64_t pair = world_.rank() / 2;
    const int64_t side = world_.rank() % 2;
    Dims outer(static_cast<size_t>(whole.dim()), 0);
    Dims inner = outer;
    Dims rows = whole.sizes().vec();
    outer[0] = pair * whole.size(0) / pairs;
    rows[0] = (pair + 1) * whole.size(0) / pairs - outer[0];
    inner[1] = side * cut;
    Dims piece = rows;
    piece[1] = side == 0 ? cut : whole.size(1) - cut;
    Dims place = outer;
    place[1] = inner[1];
    std::vector<int64_t> others;
    for (int64_t i = 0; i < pairs; ++i) others.push_back(2 * i + side);
    const at::Tensor shard = in_one(part(whole, place, piece).clone(), inner, rows, {2 * pair, 2 * pair + 1});
    return in_one(shard, outer, whole.sizes().vec(), others);
  }

 private:
  static at::Tensor part(at::Tensor whole, const Dims& offsets, const Dims& sizes) {
    for (size_t d = 0; d < offsets.size(); ++d) whole = whole.narrow(static_cast<int64_t>(d), offsets[d], sizes[d]);
    return whole;
  }
  at::Tensor in_one(const at::Tensor& shard, const Dims& offsets, const Dims& size, std::vector<int64_t> ranks) {
    sharded::GroupOptions options;
    options.ranks = std::move(ranks);
    return sharded::init_from_local_shards({sharded::Shard::from_tensor_and_offsets(shard, offsets, world_.rank())},
                                           size, options);
  }

  const World& world_;
};

/// Whether this rank's parts of a tensor of any kind are those of `whole`.
inline bool holds(const at::Tensor& tensor, const at::Tensor& whole) {
  const auto chunks = checkpointable(tensor);
  for (const ChunkMetadata& chunk : chunks->chunk_list()) {
    at::Tensor part = whole;
    for (size_t d = 0; d < chunk.offsets.size(); ++d) {
      part = part.narrow(static_cast<int64_t>(d), chunk.offsets[d], chunk.sizes[d]);
    }
    const at::Tensor here = chunks->shard({"", chunk.offsets, {}});
    const auto bytes = [](const at::Tensor& t) { return t.contiguous().view({-1}).view(torch::kByte); };
    if (here.sizes() != part.sizes() || here.scalar_type() != part.scalar_type()) return false;
    if (here.numel() > 0 && !bytes(here).equal(bytes(part))) return false;
  }
  return true;
}

}  // namespace sherd::testing
