#include "tensor/crossing.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

#include "comm/huge_pages.h"
#include "comm/mesh_group.h"
#include "comm/step_scope.h"
#include "plan/places.h"
#include "plan/relabel.h"
#include "sherd/world.h"
#include "tensor/costs.h"
#include "tensor/joint_swap.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"
#include "tensor/reduce_parts.h"
#include "tensor/travel_types.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::Action;
using plan::RunGrid;

struct CrossingKey {
  SpecPtr from;
  SpecPtr to;
  c10::ScalarType dtype;
  c10::ScalarType moved;  // the type that values travel in
  RedistributeOptions::Prefer prefer;
  bool relabel;
  uint64_t costs;  // by their version
  bool operator==(const CrossingKey&) const = default;
};
struct CrossingKeyHash {
  size_t operator()(const CrossingKey& key) const {
    size_t hash = reinterpret_cast<size_t>(key.from.get()) * 0x9E3779B97F4A7C15ULL;
    hash ^= reinterpret_cast<size_t>(key.to.get()) + (hash >> 17);
    const size_t types = static_cast<size_t>(key.dtype) * 64 + static_cast<size_t>(key.moved);
    return hash * 31 + types * 8 + static_cast<size_t>(key.prefer) * 2 + (key.relabel ? 1 : 0);
  }
};
constexpr size_t kCrossingsKept = 256;

SpecPtr relabelled(const Spec& from, const Spec& to) {
  const WorldScope world(to.mesh.world());
  const DeviceMesh mesh(c10::DeviceTypeName(to.mesh.device_type(), true), plan::relabel(from.layout(), to.layout()));
  return intern_spec(mesh, to.placements, to.sizes, to.strides);
}

bool reduces(const Crossing& way) { return way.plan.steps.front().action == Action::reduce_to; }

CrossingPtr make_crossing(const CrossingKey& key) {
  const Spec& from = *key.from;
  auto way = std::make_shared<Crossing>();
  way->from = key.from;
  way->target = key.relabel ? relabelled(from, *key.to) : key.to;
  const World world = from.mesh.world();
  const Layout before = from.layout();
  const Layout after = way->target->layout();
  const plan::PlanOptions options{.prefer = plan_preference(key.prefer),
                                  .costs = current_costs(),
                                  .reduced_size = static_cast<int64_t>(c10::elementSize(key.dtype))};
  way->plan = plan::plan_crossing(before, after, static_cast<int64_t>(c10::elementSize(key.moved)), options);
  way->text = fmt::format("{} -> {} on {} by {}", describe(from, key.dtype), to_string(key.to->placements),
                          to_string(key.to->mesh), to_string(way->plan, way->target->mesh.mesh()));
  way->purpose = std::make_shared<Purpose>("redistribute " + way->text);
  const auto& was = from.mesh.coordinate();
  const auto& is = way->target->mesh.coordinate();
  if (!was && !is) return way;
  std::vector<int64_t> ranks = before.mesh.ranks();
  for (const int64_t more : after.mesh.ranks()) ranks.push_back(more);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  way->all = world.group(ranks);
  if (was) way->having = group_of(from.mesh);
  // Where ranks share the work of reducing, each gets other rows.
  const bool shared = reduces(*way) && way->plan.steps.size() > 1;
  way->most_given = largest_part(before) * (shared ? 1 : plan::most_times_given(before, after));
  way->most_taken = largest_part(after);
  if (!reduces(*way)) {
    way->transfers = plan::transfers(before, after, world.rank());
    return way;
  }
  way->reductions = plan::reductions(before, after, world.rank(), shared);
  if (shared && is) {
    std::vector<int64_t> alike;
    plan::for_each_replica(after.mesh, plan::place_of(after, *is),
                           [&](const Dims& there) { alike.push_back(after.mesh.rank_at(there)); });
    way->alike = world.group(alike);
  }
  return way;
}

// A tensor on its way: what this rank has of it, and will have.
struct Traveller {
  Traveller(const Crossing& crossing, Tensor local)
      : way(crossing),
        before(way.from->layout()),
        held{std::move(local), grid_at(way.from->mesh, before)},
        result{empty_large(way.target->local_sizes, held.tensor.options()),
               grid_at(way.target->mesh, way.target->layout())} {}

  const Crossing& way;
  const Layout before;
  const HeldPart held;
  HeldPart result;
  std::vector<HeldPart> pieces = {};  // that this rank reduces for others, too

 private:
  static RunGrid grid_at(const DeviceMesh& mesh, const Layout& layout) {
    return mesh.coordinate() ? plan::grid_of(layout, *mesh.coordinate()) : RunGrid(layout.shape.size());
  }
};
using Travellers = std::vector<Traveller*>;

// Carries out the crossings of tensors between two meshes, all of them exchanges or all of them reductions, and all of
// one dtype. Every rank has them in the same order.
class Walk {
 public:
  Walk(Travellers travellers, PurposePtr purpose, const RedistributeOptions& options, bool background)
      : travellers_(std::move(travellers)), purpose_(std::move(purpose)), options_(options), background_(background) {}

  void exchange() {
    JointSwap swap;
    for (const Traveller* traveller : travellers_) {
      swap.elements += traveller->way.most_given + traveller->way.most_taken;
      swap.add({traveller->held}, {traveller->result}, traveller->way.transfers);
    }
    run(std::move(swap), travellers_, 0);
  }

  void reduce() {
    std::vector<PartsToReduce> tensors;
    for (Traveller* traveller : travellers_) {
      const plan::Reductions& work = traveller->way.reductions;
      std::vector<PieceToReduce> pieces;
      for (const RunGrid& rows : work.pieces) {
        if (traveller->way.alike) {
          traveller->pieces.push_back({empty_large(plan::shape_of(rows), traveller->held.tensor.options()), rows});
        }
        pieces.push_back({rows, traveller->way.alike ? traveller->pieces.back() : traveller->result});
      }
      tensors.push_back({.layout = traveller->before,
                         .held = traveller->held,
                         .pieces = std::move(pieces),
                         .parts = work.parts,
                         .contributions = work.contributions,
                         .most_taken = traveller->way.most_taken,
                         .most_given = traveller->way.most_given});
    }
    std::vector<const PartsToReduce*> all;
    for (const PartsToReduce& tensor : tensors) all.push_back(&tensor);
    const auto text = [&] { return text_of(travellers_, 0); };
    const StepScope scope(text);
    reduce_parts(group_for(*travellers_.front()->way.all), all,
                 {purpose_, options_.staging_bytes, options_.reduce_dtype});
    share_results();
  }

 private:
  static std::string text_of(const Travellers& travellers, size_t step) {
    const Crossing& first = travellers.front()->way;
    const std::string one = to_string(first.plan.steps[step], first.target->mesh.mesh());
    return travellers.size() == 1 ? one : fmt::format("{} and {} more", one, travellers.size() - 1);
  }

  Group group_for(const Group& group) const { return background_ ? group.in_background() : group; }

  // The group of a step is the first one's and all others'.
  void run(JointSwap swap, const Travellers& travellers, size_t step) const {
    const auto text = [&] { return text_of(travellers, step); };
    const StepScope scope(text);
    const Crossing& first = travellers.front()->way;
    const c10::ScalarType own = travellers.front()->held.tensor.scalar_type();
    swap_parts(group_for(step == 0 ? *first.all : *first.alike), std::move(swap.from), std::move(swap.to),
               swap.transfers, {purpose_, swap.elements, options_.staging_bytes, travels_in(own, options_.move_dtype)});
  }

  // Those who want the same and shared the work tell each other. All of them have the same tensors in such a set, and
  // come to the sets in the order of their first ones.
  void share_results() const {
    std::vector<Travellers> sets;
    for (Traveller* traveller : travellers_) {
      if (!traveller->way.alike) continue;
      const auto known = std::find_if(sets.begin(), sets.end(), [&](const Travellers& set) {
        return set.front()->way.alike->ranks() == traveller->way.alike->ranks();
      });
      if (known != sets.end()) {
        known->push_back(traveller);
      } else {
        sets.push_back({traveller});
      }
    }
    for (const Travellers& set : sets) {
      JointSwap swap;
      for (Traveller* traveller : set) {
        // What this one reduced goes to all of the set.
        swap.elements += 2 * traveller->way.most_taken;
        swap.add(traveller->pieces, {traveller->result}, traveller->way.reductions.results);
      }
      run(std::move(swap), set, 1);
    }
  }

  const Travellers travellers_;
  const PurposePtr purpose_;
  const RedistributeOptions& options_;
  const bool background_;
};

}  // namespace

CrossingPtr crossing_between(const SpecPtr& from, const SpecPtr& to, c10::ScalarType dtype,
                             const RedistributeOptions& options) {
  thread_local std::unordered_map<CrossingKey, CrossingPtr, CrossingKeyHash> ways;
  const c10::ScalarType moved = travels_in(dtype, options.move_dtype);
  CrossingKey key{from, to, dtype, moved, options.prefer, options.relabel, costs_version()};
  if (const auto found = ways.find(key); found != ways.end()) return found->second;
  if (ways.size() >= kCrossingsKept) ways.clear();
  CrossingPtr way = make_crossing(key);
  ways.emplace(std::move(key), way);
  return way;
}

std::vector<Tensor> crossed(const std::vector<CrossingPtr>& ways, const std::vector<Tensor>& locals,
                            const RedistributeOptions& options, bool background) {
  std::vector<Tensor> results(ways.size());
  std::vector<PurposePtr> purposes;
  std::deque<Traveller> travellers;
  std::vector<size_t> whose;
  std::map<std::pair<bool, c10::ScalarType>, Travellers> alike;  // whether they are reduced, and what travels
  for (size_t i = 0; i < ways.size(); ++i) {
    const Crossing& way = *ways[i];
    const bool sums = reduces(way);
    if (sums) {
      check_can_reduce("redistribute", way.from->layout(), locals[i].options(), options.reduce_dtype);
    }
    purposes.push_back(way.purpose);
    if (!way.all || locals[i].is_meta()) {
      results[i] = wrap(way.target, at::empty(way.target->local_sizes, locals[i].options()));
      continue;
    }
    // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
    const Tensor given = locals[i].resolve_conj().resolve_neg().contiguous();
    alike[{sums, given.scalar_type()}].push_back(&travellers.emplace_back(way, given));
    whose.push_back(i);
  }
  const PurposePtr purpose = common_purpose(purposes);
  for (auto& [kind, together] : alike) {
    Walk walk(std::move(together), purpose, options, background);
    if (kind.first) {
      walk.reduce();
    } else {
      walk.exchange();
    }
  }
  for (size_t k = 0; k < whose.size(); ++k) {
    const size_t i = whose[k];
    results[i] = wrap(ways[i]->target, travellers[k].result.tensor);
  }
  return results;
}

}  // namespace sherd::detail
