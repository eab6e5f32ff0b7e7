#include "tensor/swap_parts.h"

#include <algorithm>
#include <map>

namespace sherd::detail {
namespace {

// Finds a rank's place in a group, by its number in the world.
class Places {
 public:
  explicit Places(const Group& group) : ranks_(group.ranks()) {
    if (std::is_sorted(ranks_.begin(), ranks_.end())) return;
    for (size_t i = 0; i < ranks_.size(); ++i) places_[ranks_[i]] = i;
  }
  size_t of(int64_t rank) const {
    if (!places_.empty()) return places_.at(rank);
    return static_cast<size_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }

 private:
  const std::vector<int64_t>& ranks_;
  std::map<int64_t, size_t> places_ = {};  // where they are not in order
};

}  // namespace

void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, const Staging& staging) {
  // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
  for (HeldPart& part : from) part.tensor = part.tensor.resolve_conj().resolve_neg();
  const Places places(group);
  const auto members = static_cast<size_t>(group.size());
  BlockSwap swap{.group = group, .from = std::move(from), .to = std::move(to), .travels = staging.travels};
  swap.gives.resize(members);
  swap.takes.resize(members);
  for (const plan::Transfer& give : transfers.gives) swap.gives[places.of(give.rank)].push_back({give.from, give.rows});
  for (const plan::Transfer& take : transfers.takes) swap.takes[places.of(take.rank)].push_back({take.to, take.rows});
  swap.rounds = rounds_for(staging.bytes, staging.limit);
  run_swap(swap);
}

int64_t largest_part(const Layout& layout) {
  Dims sizes = local_shape(layout, Dims(layout.placements.size(), 0));  // no chunk is larger than the first
  for (const Placement& p : layout.placements) {
    const auto* ragged = std::get_if<Ragged>(&p);
    if (ragged == nullptr) continue;
    int64_t& size = sizes[static_cast<size_t>(ragged->dim)];
    size = 0;
    for (size_t i = 1; i < ragged->cuts.size(); ++i) size = std::max(size, ragged->cuts[i] - ragged->cuts[i - 1]);
  }
  return numel(sizes);
}

int64_t replicas(const Layout& layout) {
  int64_t ranks = 1;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    if (!is_shard(layout.placements[axis])) ranks *= layout.mesh.axes()[axis].size;
  }
  return ranks;
}

int64_t most_given(const Layout& from, const Layout& to) {
  const int64_t holders = replicas(from);
  return largest_part(from) * ((replicas(to) + holders - 1) / holders);
}

}  // namespace sherd::detail
