#include "tensor/swap_parts.h"

#include <algorithm>
#include <map>

#include "comm/huge_pages.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// A rank's place in the group, by its number in the world.
std::map<int64_t, size_t> places_in(const Group& group) {
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < group.ranks().size(); ++i) places[group.ranks()[i]] = i;
  return places;
}

}  // namespace

void swap_parts(const Group& group, std::vector<HeldPart> from, std::vector<HeldPart> to,
                const plan::Transfers& transfers, int64_t bytes, int64_t staging_bytes) {
  const auto places = places_in(group);
  BlockSwap swap{.group = group, .from = std::move(from), .to = std::move(to)};
  swap.gives.resize(places.size());
  swap.takes.resize(places.size());
  for (const plan::Transfer& give : transfers.gives) swap.gives[places.at(give.rank)].push_back({give.from, give.rows});
  for (const plan::Transfer& take : transfers.takes) swap.takes[places.at(take.rank)].push_back({take.to, take.rows});
  swap.rounds = rounds_for(bytes, staging_bytes);
  run_swap(swap);
}

Tensor swap_layouts(const World& world, const Layout& before, const Layout& after, const Tensor& local,
                    int64_t staging_bytes) {
  const int64_t rank = world.rank();
  const auto was = before.mesh.coordinate_of(rank);
  const auto is = after.mesh.coordinate_of(rank);
  Tensor result = empty_large(is ? local_shape(after, *is) : Dims{0}, local.options());
  if (!was && !is) return result;
  std::vector<int64_t> ranks = before.mesh.ranks();
  for (const int64_t more : after.mesh.ranks()) ranks.push_back(more);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const plan::RunGrid nothing(before.shape.size());
  std::vector<HeldPart> from = {{local.contiguous(), was ? plan::grid_of(before, *was) : nothing}};
  std::vector<HeldPart> to = {{result, is ? plan::grid_of(after, *is) : nothing}};
  const int64_t bytes =
      2 * std::max(largest_part(before), largest_part(after)) * static_cast<int64_t>(local.element_size());
  swap_parts(world.group(ranks), std::move(from), std::move(to), plan::transfers(before, after, rank), bytes,
             staging_bytes);
  return result;
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

}  // namespace sherd::detail
