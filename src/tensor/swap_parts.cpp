#include "tensor/swap_parts.h"

#include <algorithm>
#include <map>
#include <memory>

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
  const PurposeScope purpose(staging.purpose);
  // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
  for (HeldPart& part : from) part.tensor = part.tensor.resolve_conj().resolve_neg();
  const Places places(group);
  const auto members = static_cast<size_t>(group.size());
  BlockSwap swap{.group = group, .from = std::move(from), .to = std::move(to), .travels = staging.travels};
  swap.gives.resize(members);
  swap.takes.resize(members);
  for (const plan::Transfer& give : transfers.gives) swap.gives[places.of(give.rank)].push_back({give.from, give.rows});
  for (const plan::Transfer& take : transfers.takes) swap.takes[places.of(take.rank)].push_back({take.to, take.rows});
  swap.rounds = rounds_for(staging.elements * packed_size(swap), staging.limit);
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

PurposePtr purpose_with_boxes(const std::string& what, const std::vector<plan::RankPart>& boxes) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](int64_t number) { hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3; };
  for (const plan::RankPart& part : boxes) {
    add(part.rank);
    for (const plan::RunList& runs : part.rows) {
      add(-1);
      for (const Run& run : runs) {
        add(run.offset);
        add(run.size);
      }
    }
  }
  return std::make_shared<Purpose>(what + ", boxes", hash | 1);
}

}  // namespace sherd::detail
