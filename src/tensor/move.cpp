#include "tensor/move.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>

#include "comm/huge_pages.h"
#include "comm/observer.h"
#include "comm/step_scope.h"
#include "sherd/collectives.h"
#include "tensor/blocks.h"
#include "tensor/runs.h"
#include "tensor/swap_parts.h"
#include "tensor/travel_types.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::Action;
using plan::Held;
using plan::intersect;
using plan::numel;
using plan::shape_of;
using plan::Step;

bool communicates(const Step& step) { return step.action != Action::slice && step.action != Action::keep_one; }

// A tensor on its way.
struct Traveller {
  explicit Traveller(const Move& move, const Mesh& mesh)
      : steps(move.plan.steps),
        // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
        local(move.local.resolve_conj().resolve_neg()),
        dtype(local.scalar_type()),
        held(mesh, move.shape, move.from) {}

  const Step& step() const { return steps[at]; }
  void arrive(Tensor part) {
    local = std::move(part);
    held.become(step().after, step().cut);
    ++at;
  }

  const std::vector<Step>& steps;
  size_t at = 0;
  Tensor local;
  const c10::ScalarType dtype;  // its own
  Held held;
};

ReduceOp partial_op(const Traveller& traveller, int64_t axis) {
  return std::get<Partial>(traveller.held.placements()[static_cast<size_t>(axis)]).op;
}

// Whether what every member has is what every member wants: a gather, which transports do better than an exchange.
bool is_gather(const Placements& before, const Step& step) {
  for (size_t axis = 0; axis < before.size(); ++axis) {
    const bool sender = std::find(step.axes.begin(), step.axes.end(), static_cast<int64_t>(axis)) != step.axes.end();
    if (sender ? !is_replicate(step.after[axis]) : before[axis] != step.after[axis]) return false;
  }
  return step.action == Action::exchange;
}

// What must be equal for tensors to share messages: their type, and what is done along which axes.
std::string itinerary(const Move& move, const Mesh& mesh) {
  std::string text = c10::toString(move.local.scalar_type());
  Placements before = move.from;
  for (const Step& step : move.plan.steps) {
    if (communicates(step)) {
      text += ' ' + to_string(step, mesh);
      if (step.action != Action::exchange) text += to_string(before[static_cast<size_t>(step.axes[0])]);
      if (is_gather(before, step)) text += " whole";
    }
    before = step.after;
  }
  return text;
}

class Mover {
 public:
  Mover(const DeviceMesh& mesh, const MoveOptions& options)
      : mesh_(mesh), here_(*mesh.coordinate()), options_(options) {}

  // All with the same itinerary.
  void run(std::vector<Traveller*> travellers) {
    while (true) {
      std::erase_if(travellers, [&](Traveller* traveller) { return !go_to_next_call(*traveller); });
      if (travellers.empty()) return;
      const Step& step = travellers.front()->step();
      const auto text = [&] { return to_string(step, mesh_.mesh()); };
      const StepScope scope(text);
      if (step.action == Action::all_reduce) {
        all_reduce_all(travellers);
      } else {
        swap(travellers, step);
      }
    }
  }

 private:
  using Travellers = std::vector<Traveller*>;

  static bool reduces(const Step& step) { return communicates(step) && step.action != Action::exchange; }

  // The type of what a step takes from rank to rank: values are converted as they are packed, so that none of them lie
  // there twice.
  c10::ScalarType travels(const Traveller& traveller) const {
    if (reduces(traveller.step())) return reduces_in(traveller.dtype, options_.reduce_dtype);
    return travels_in(traveller.local.scalar_type(), options_.move_dtype);
  }

  // The type of what it leaves: what is summed up in another type is in its own again, unless more is to be added.
  c10::ScalarType left(const Traveller& traveller) const {
    if (!reduces(traveller.step())) return traveller.local.scalar_type();
    const auto next = traveller.steps.begin() + static_cast<std::ptrdiff_t>(traveller.at) + 1;
    return std::any_of(next, traveller.steps.end(), reduces) ? travels(traveller) : traveller.dtype;
  }

  bool go_to_next_call(Traveller& traveller) const {
    while (traveller.at < traveller.steps.size() && !communicates(traveller.step())) {
      const Step& step = traveller.step();
      traveller.arrive(step.action == Action::slice ? sliced(traveller)
                                                    : keep_one(step.axes[0], traveller.local, step.after));
    }
    return traveller.at < traveller.steps.size();
  }

  Held after(const Traveller& traveller) const {
    Held held = traveller.held;
    held.become(traveller.step().after, traveller.step().cut);
    return held;
  }

  Tensor sliced(const Traveller& traveller) const {
    return take(traveller.local, traveller.held.grid(here_), after(traveller).grid(here_));
  }

  Tensor keep_one(int64_t axis, const Tensor& local, const Placements& after) const {
    if (here_[static_cast<size_t>(axis)] == 0) return local;
    const ReduceOp op = std::get<Partial>(after[static_cast<size_t>(axis)]).op;
    const bool zero = op == ReduceOp::sum || op == ReduceOp::bxor;
    if (!zero && op != ReduceOp::product) return local;  // the reduction of equal values is the value
    Tensor neutral = zero ? at::zeros_like(local) : at::ones_like(local);
    // A number that a program wrote does not decide a result's dtype: not here either.
    if (local.unsafeGetTensorImpl()->is_wrapped_number()) neutral.unsafeGetTensorImpl()->set_wrapped_number(true);
    return neutral;
  }

  int64_t bytes_on_the_way(const Traveller& traveller) const {
    return traveller.local.numel() * static_cast<int64_t>(c10::elementSize(travels(traveller)));
  }

  // As many at once as fit into the staging buffer, and at least one. Ranks that reduce together have equal parts, so
  // they all cut the list alike.
  void all_reduce_all(const Travellers& travellers) const {
    const std::vector<int64_t>& axes = travellers.front()->step().axes;
    const Group group = group_of(axes, peers(axes));
    const ReduceOp op = partial_op(*travellers.front(), axes[0]);
    Travellers batch;
    int64_t bytes = 0;
    for (Traveller* traveller : travellers) {
      const int64_t more = bytes_on_the_way(*traveller);
      if (!batch.empty() && bytes + more > options_.staging_bytes) {
        all_reduce_batch(group, op, batch);
        batch.clear();
        bytes = 0;
      }
      batch.push_back(traveller);
      bytes += more;
    }
    all_reduce_batch(group, op, batch);
  }

  // Where the result lies; through the staging buffer where it has another type there.
  void all_reduce_one(const Group& group, ReduceOp op, Traveller& traveller) const {
    Tensor result = empty_large(traveller.local.sizes(), traveller.local.options().dtype(left(traveller)));
    const c10::ScalarType type = travels(traveller);
    if (result.scalar_type() == type) {
      result.copy_(traveller.local);
      all_reduce(group, result, op).wait();
    } else {
      // What is summed up a second time is in that type already, and contiguous.
      const bool own = traveller.local.scalar_type() == result.scalar_type();
      const Tensor from = (own ? result.copy_(traveller.local) : traveller.local.contiguous()).view({-1});
      const Tensor to = result.view({-1});
      const int64_t rounds = rounds_for(bytes_on_the_way(traveller), options_.staging_bytes);
      for (int64_t round = 0; round < rounds; ++round) {
        const Run rows = chunk(to.numel(), rounds, round);
        const Tensor staged = empty_large({rows.size}, result.options().dtype(type));
        staged.copy_(from.narrow(0, rows.offset, rows.size));
        all_reduce(group, staged, op).wait();
        to.narrow(0, rows.offset, rows.size).copy_(staged);
      }
    }
    traveller.arrive(std::move(result));
  }

  void all_reduce_batch(const Group& group, ReduceOp op, const Travellers& travellers) const {
    if (travellers.size() == 1) {
      all_reduce_one(group, op, *travellers[0]);
      return;
    }
    int64_t total = 0;
    for (const Traveller* traveller : travellers) total += traveller->local.numel();
    const Tensor all = empty_large({total}, travellers[0]->local.options().dtype(travels(*travellers[0])));
    int64_t at = 0;
    for (const Traveller* traveller : travellers) {
      const Tensor& local = traveller->local;
      all.narrow(0, at, local.numel()).view(local.sizes()).copy_(local);
      at += local.numel();
    }
    all_reduce(group, all, op).wait();
    at = 0;
    for (Traveller* traveller : travellers) {
      const Dims sizes = traveller->local.sizes().vec();
      Tensor part = empty_large(sizes, all.options().dtype(left(*traveller)));
      part.copy_(all.narrow(0, at, sherd::numel(sizes)).view(sizes));
      traveller->arrive(std::move(part));
      at += sherd::numel(sizes);
    }
  }

  // The ranks that take part in a step along some axes: their coordinates, in row-major order of the axes.
  std::vector<Dims> peers(const std::vector<int64_t>& axes) const {
    std::vector<Dims> result = {here_};
    for (const int64_t axis : axes) {
      std::vector<Dims> further;
      for (const Dims& place : result) {
        for (int64_t i = 0; i < mesh_.size(axis); ++i) {
          Dims there = place;
          there[static_cast<size_t>(axis)] = i;
          further.push_back(std::move(there));
        }
      }
      result = std::move(further);
    }
    return result;
  }

  std::vector<int64_t> ranks_at(const std::vector<Dims>& places) const {
    std::vector<int64_t> ranks;
    for (const Dims& place : places) ranks.push_back(mesh_.mesh().rank_at(place));
    return ranks;
  }

  // As flatten() would call them: "dp_tp".
  std::string names_of(const std::vector<int64_t>& axes) const {
    std::string names;
    for (const int64_t axis : axes) names += (names.empty() ? "" : "_") + mesh_.mesh().axis_label(axis);
    return names;
  }

  Group group_of(const std::vector<int64_t>& axes, const std::vector<Dims>& members) const {
    const Group group = axes.size() == 1 ? mesh_.group(axes[0]) : mesh_.world().group(ranks_at(members));
    if (axes.size() > 1 && comm_observer() != nullptr) label_group(group, names_of(axes));
    return options_.background ? group.in_background() : group;
  }

  // Nothing is packed or unpacked where the parts of a first dim are gathered.
  bool needs_no_staging(const Travellers& travellers) const {
    if (travellers.size() > 1 || !is_gather(travellers[0]->held.placements(), travellers[0]->step())) return false;
    const Traveller& traveller = *travellers[0];
    if (travels(traveller) != traveller.local.scalar_type()) return false;
    const Dims& shape = traveller.held.layout().shape;
    size_t first = 0;
    while (first < shape.size() && shape[first] == 1) ++first;
    for (const int64_t axis : traveller.step().axes) {
      const Placement& p = traveller.held.placements()[static_cast<size_t>(axis)];
      if (sharded_dim(p) != static_cast<int64_t>(first) || std::holds_alternative<StridedShard>(p)) return false;
    }
    return traveller.held.cut().empty();
  }

  // How many of those who take part in an exchange want the same.
  int64_t wanting(const Step& step) const {
    int64_t ranks = 1;
    for (const int64_t axis : step.axes) {
      const auto is_in = [&](const std::vector<int64_t>& axes) { return std::ranges::find(axes, axis) != axes.end(); };
      const bool parts =
          is_shard(step.after[static_cast<size_t>(axis)]) || is_in(step.cut.axes) || is_in(step.cut.sharers);
      if (!parts) ranks *= mesh_.size(axis);
    }
    return ranks;
  }

  // Exchange: each rank gets what it lacks from the ranks along the axes that shard the tensor now; together they hold
  // all of it exactly once, so nothing is sent twice. Reduce-scatter: each gets its rows of all, reduced.
  void swap(const Travellers& travellers, const Step& step) const {
    const std::vector<Dims> members = peers(step.axes);
    BlockSwap swap{.group = group_of(step.axes, members), .travels = travels(*travellers[0])};
    const bool gathers = is_gather(travellers.front()->held.placements(), step);
    if (step.action == Action::reduce_scatter) swap.reduce = partial_op(*travellers[0], step.axes[0]);
    swap.gather = gathers;
    std::vector<Held> next;
    for (const Traveller* traveller : travellers) {
      next.push_back(after(*traveller));
      swap.from.push_back({traveller->local.contiguous(), traveller->held.grid(here_)});
      RunGrid wanted = next.back().grid(here_);
      const at::TensorOptions options = traveller->local.options().dtype(left(*traveller));
      swap.to.push_back({empty_large(shape_of(wanted), options), std::move(wanted)});
    }
    swap.gives.resize(gathers ? 1 : members.size());
    swap.takes.resize(swap.reduce ? 1 : members.size());
    int64_t staged = 0;  // elements that a rank of the group packs and unpacks, at the most
    for (size_t i = 0; i < travellers.size(); ++i) {
      // Those of one group that gather want the same, and those that reduce have the same rows.
      int64_t held = numel(swap.from[i].rows);
      int64_t taken = numel(swap.to[i].rows);
      if (gathers) swap.gives[0].push_back({i, swap.from[i].rows});
      if (swap.reduce) swap.takes[0].push_back({i, swap.to[i].rows});
      for (size_t m = 0; m < members.size(); ++m) {
        if (!swap.reduce) {
          RunGrid has = travellers[i]->held.grid(members[m]);
          held = std::max(held, numel(has));
          swap.takes[m].push_back({i, gathers ? std::move(has) : intersect(has, swap.to[i].rows)});
        }
        if (!gathers) {
          RunGrid wanted = next[i].grid(members[m]);
          taken = std::max(taken, numel(wanted));
          swap.gives[m].push_back({i, swap.reduce ? std::move(wanted) : intersect(swap.from[i].rows, wanted)});
        }
      }
      // An exchange takes what a rank has to all that want it.
      staged += held * (swap.reduce || gathers ? 1 : wanting(step)) + taken;
    }
    if (!needs_no_staging(travellers)) {
      swap.rounds = rounds_for(staged * packed_size(swap), options_.staging_bytes);
    }
    run_swap(swap);
    for (size_t i = 0; i < travellers.size(); ++i) travellers[i]->arrive(std::move(swap.to[i].tensor));
  }

  const DeviceMesh& mesh_;
  const Dims& here_;
  const MoveOptions& options_;
};

}  // namespace

std::vector<Tensor> move_together(const DeviceMesh& mesh, const std::vector<Move>& moves, const MoveOptions& options) {
  std::vector<Tensor> results;
  if (!mesh.coordinate()) {
    for (const Move& move : moves) results.push_back(move.local);
    return results;
  }
  std::vector<Traveller> travellers;
  travellers.reserve(moves.size());
  for (const Move& move : moves) travellers.emplace_back(move, mesh.mesh());
  Mover mover(mesh, options);
  if (moves.size() == 1) {
    mover.run({travellers.data()});
  } else {
    std::map<std::string, std::vector<Traveller*>> parties;
    for (size_t i = 0; i < moves.size(); ++i) parties[itinerary(moves[i], mesh.mesh())].push_back(&travellers[i]);
    for (auto& [name, party] : parties) mover.run(std::move(party));
  }
  for (size_t i = 0; i < moves.size(); ++i) results.push_back(travellers[i].local.to(moves[i].local.scalar_type()));
  return results;
}

Tensor move(const plan::Redistribution& plan, const Tensor& local, const DeviceMesh& mesh, const Dims& shape,
            const Placements& from) {
  if (plan.steps.empty() || !mesh.coordinate()) return local;
  return move_together(mesh, {{plan, local, shape, from}})[0];
}

Tensor move(const Tensor& local, const DeviceMesh& mesh, const Dims& shape, const Placements& from,
            const Placements& to) {
  if (from == to || !mesh.coordinate()) return local;
  return move(plan::plan_redistribution(mesh.mesh(), shape, static_cast<int64_t>(local.element_size()), from, to),
              local, mesh, shape, from);
}

}  // namespace sherd::detail
