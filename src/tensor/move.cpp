#include "tensor/move.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>

#include "sherd/collectives.h"
#include "tensor/runs.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::Action;
using plan::grid_of;
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
  Held held;
};

ReduceOp partial_op(const Traveller& traveller, int64_t axis) {
  return std::get<Partial>(traveller.held.placements()[static_cast<size_t>(axis)]).op;
}

// What must be equal for tensors to share messages: their type, and for each step what is done along which axes.
std::string itinerary(const Move& move) {
  std::string text = c10::toString(move.local.scalar_type());
  Placements before = move.from;
  for (const Step& step : move.plan.steps) {
    if (communicates(step)) {
      text += static_cast<char>('a' + static_cast<int>(step.action));
      for (const int64_t axis : step.axes) {
        text += static_cast<char>('0' + axis);
        text += to_string(before[static_cast<size_t>(axis)]).front() == 'P' ? to_string(before[static_cast<size_t>(axis)])
                                                                          : std::string();
      }
    }
    before = step.after;
  }
  return text;
}

// The most elements that a rank holds, from what all ranks know.
int64_t largest_part(const Held& held) {
  Dims sizes = shape_of(grid_of(held.layout(), Dims(held.placements().size(), 0)));  // no chunk is larger than the first
  for (const Placement& p : held.placements()) {
    const auto* ragged = std::get_if<Ragged>(&p);
    if (ragged == nullptr) continue;
    int64_t& size = sizes[static_cast<size_t>(ragged->dim)];
    size = 0;
    for (size_t i = 1; i < ragged->cuts.size(); ++i) size = std::max(size, ragged->cuts[i] - ragged->cuts[i - 1]);
  }
  return sherd::numel(sizes);
}

// True where `blocks`, one after the other, are a tensor of `rows` as it lies in memory.
bool lie_in_order(const RunGrid& rows, const std::vector<RunGrid>& blocks) {
  size_t dim = 0;
  while (dim + 1 < rows.size() && plan::rows_of(rows[dim]) == 1) ++dim;
  if (rows.empty() || rows[dim].size() > 1) return blocks.size() == 1;
  int64_t next = rows[dim].empty() ? 0 : rows[dim][0].offset;
  for (const RunGrid& block : blocks) {
    if (numel(block) == 0) continue;
    for (size_t d = 0; d < rows.size(); ++d) {
      if (d != dim && block[d] != rows[d]) return false;
    }
    for (const Run& run : block[dim]) {
      if (run.offset != next) return false;
      next = run.offset + run.size;
    }
  }
  return true;
}

int64_t sum(const std::vector<int64_t>& numbers) {
  int64_t total = 0;
  for (const int64_t n : numbers) total += n;
  return total;
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
      if (step.action == Action::all_reduce) {
        all_reduce_all(travellers);
      } else {
        swap_blocks(travellers, step);
      }
    }
  }

 private:
  using Travellers = std::vector<Traveller*>;
  struct Blocks {  // per member, per tensor
    std::vector<std::vector<RunGrid>> rows;
    std::vector<int64_t> numels;  // per member
  };

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

  void all_reduce_all(const Travellers& travellers) const {
    const std::vector<int64_t>& axes = travellers.front()->step().axes;
    const Group group = group_of(axes, peers(axes));
    const ReduceOp op = partial_op(*travellers.front(), axes[0]);
    if (travellers.size() == 1) {
      Tensor result = travellers[0]->local.clone(at::MemoryFormat::Contiguous);
      all_reduce(group, result, op).wait();
      travellers[0]->arrive(std::move(result));
      return;
    }
    int64_t total = 0;
    for (const Traveller* traveller : travellers) total += traveller->local.numel();
    const Tensor all = at::empty({total}, travellers[0]->local.options());
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
      traveller->arrive(all.narrow(0, at, sherd::numel(sizes)).view(sizes).clone());
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

  Group group_of(const std::vector<int64_t>& axes, const std::vector<Dims>& members) const {
    if (axes.size() == 1) return mesh_.group(axes[0]);
    std::vector<int64_t> ranks;
    for (const Dims& member : members) ranks.push_back(mesh_.mesh().rank_at(member));
    return mesh_.world().group(ranks);
  }

  // Whether what every member has is what every member wants: a gather, which transports do better than an exchange.
  static bool is_gather(const Traveller& traveller) {
    const Step& step = traveller.step();
    const Placements& before = traveller.held.placements();
    for (size_t axis = 0; axis < before.size(); ++axis) {
      const bool sender = std::find(step.axes.begin(), step.axes.end(), static_cast<int64_t>(axis)) != step.axes.end();
      if (sender ? !is_replicate(step.after[axis]) : before[axis] != step.after[axis]) return false;
    }
    return step.action == Action::exchange;
  }

  // Nothing is packed or unpacked where the parts of a first dim are gathered.
  static bool needs_no_staging(const Travellers& travellers) {
    if (travellers.size() > 1 || !is_gather(*travellers[0])) return false;
    const Traveller& traveller = *travellers[0];
    const Dims& shape = traveller.held.layout().shape;
    size_t first = 0;
    while (first < shape.size() && shape[first] == 1) ++first;
    for (const int64_t axis : traveller.step().axes) {
      const Placement& p = traveller.held.placements()[static_cast<size_t>(axis)];
      if (sharded_dim(p) != static_cast<int64_t>(first) || std::holds_alternative<StridedShard>(p)) return false;
    }
    return traveller.held.cut().empty();
  }

  int64_t rounds(const Travellers& travellers) const {
    if (needs_no_staging(travellers)) return 1;
    int64_t bytes = 0;
    for (const Traveller* traveller : travellers) {
      const auto element = static_cast<int64_t>(traveller->local.element_size());
      bytes += (largest_part(traveller->held) + largest_part(after(*traveller))) * element;
    }
    return std::max<int64_t>(1, (bytes + options_.staging_bytes - 1) / std::max<int64_t>(1, options_.staging_bytes));
  }

  // Exchange: each rank gets what it lacks from the ranks along the axes that shard the tensor now; together they hold
  // all of it exactly once, so nothing is sent twice. Reduce-scatter: each gets its rows of all, reduced. In rounds, so
  // that what is packed stays small.
  void swap_blocks(const Travellers& travellers, const Step& step) const {
    const std::vector<Dims> members = peers(step.axes);
    const Group group = group_of(step.axes, members);
    const bool reduces = step.action == Action::reduce_scatter;
    const bool gathers = is_gather(*travellers.front());
    const int64_t count = rounds(travellers);
    std::vector<RunGrid> held;
    std::vector<RunGrid> wanted;
    std::vector<Tensor> locals;
    std::vector<Tensor> results;
    Blocks gives;
    Blocks takes;
    for (const Traveller* traveller : travellers) {
      const Held next = after(*traveller);
      held.push_back(traveller->held.grid(here_));
      wanted.push_back(next.grid(here_));
      locals.push_back(traveller->local.contiguous());
      results.push_back(at::empty(shape_of(wanted.back()), traveller->local.options()));
    }
    for (const Dims& member : members) {
      gives.rows.emplace_back();
      takes.rows.emplace_back();
      for (size_t i = 0; i < travellers.size(); ++i) {
        const Held next = after(*travellers[i]);
        if (gathers) {
          takes.rows.back().push_back(travellers[i]->held.grid(member));
        } else {
          gives.rows.back().push_back(reduces ? next.grid(member) : intersect(held[i], next.grid(member)));
          if (!reduces) takes.rows.back().push_back(intersect(travellers[i]->held.grid(member), wanted[i]));
        }
      }
    }
    if (gathers) gives.rows = {held};
    if (reduces) takes.rows = {wanted};
    for (int64_t round = 0; round < count; ++round) {
      const Blocks out = round_of(gives, count, round);
      const Blocks in = round_of(takes, count, round);
      const Tensor sent = packed(locals, held, out);
      const bool direct = count == 1 && results.size() == 1 && arrives_in_order(wanted[0], in);
      const Tensor received = direct ? results[0].view({-1}) : at::empty({sum(in.numels)}, results[0].options());
      if (reduces) {
        reduce_scatter(group, received, sent, partial_op(*travellers[0], step.axes[0]), out.numels).wait();
      } else if (gathers) {
        all_gather_uneven(group, received, sent, in.numels).wait();
      } else {
        all_to_all(group, received, sent, in.numels, out.numels).wait();
      }
      if (!direct) unpack(received, in, results, wanted);
    }
    for (size_t i = 0; i < travellers.size(); ++i) travellers[i]->arrive(std::move(results[i]));
  }

  static bool arrives_in_order(const RunGrid& rows, const Blocks& blocks) {
    std::vector<RunGrid> flat;
    for (const auto& member : blocks.rows) flat.push_back(member[0]);
    return lie_in_order(rows, flat);
  }

  static Blocks round_of(const Blocks& all, int64_t count, int64_t round) {
    Blocks part = all;
    part.numels.clear();
    for (auto& member : part.rows) {
      part.numels.push_back(0);
      for (RunGrid& rows : member) {
        if (count > 1) rows = plan::share_of(std::move(rows), count, round);
        part.numels.back() += numel(rows);
      }
    }
    return part;
  }

  static Tensor packed(const std::vector<Tensor>& locals, const std::vector<RunGrid>& held, const Blocks& blocks) {
    const int64_t total = sum(blocks.numels);
    if (locals.size() == 1 && total == locals[0].numel() && arrives_in_order(held[0], blocks)) {
      return locals[0].view({-1});
    }
    Tensor buffer = at::empty({total}, locals[0].options());
    int64_t at = 0;
    for (const auto& member : blocks.rows) {
      for (size_t i = 0; i < member.size(); ++i) {
        const int64_t count = numel(member[i]);
        if (count == 0) continue;
        buffer.narrow(0, at, count).view(shape_of(member[i])).copy_(take(locals[i], held[i], member[i]));
        at += count;
      }
    }
    return buffer;
  }

  static void unpack(const Tensor& buffer, const Blocks& blocks, const std::vector<Tensor>& results,
                     const std::vector<RunGrid>& wanted) {
    int64_t at = 0;
    for (const auto& member : blocks.rows) {
      for (size_t i = 0; i < member.size(); ++i) {
        const int64_t count = numel(member[i]);
        if (count == 0) continue;
        put(results[i], wanted[i], member[i], buffer.narrow(0, at, count).view(shape_of(member[i])));
        at += count;
      }
    }
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
    for (size_t i = 0; i < moves.size(); ++i) parties[itinerary(moves[i])].push_back(&travellers[i]);
    for (auto& [name, party] : parties) mover.run(std::move(party));
  }
  for (Traveller& traveller : travellers) results.push_back(std::move(traveller.local));
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
