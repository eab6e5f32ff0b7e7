#include "tensor/move.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "sherd/collectives.h"
#include "tensor/runs.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::Action;
using plan::Step;

class Mover {
 public:
  Mover(const DeviceMesh& mesh, const Dims& shape, const Placements& from)
      : mesh_(mesh), here_(*mesh.coordinate()), layout_{mesh.mesh(), shape, from} {}

  Tensor run(const plan::Redistribution& plan, Tensor local) {
    // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
    local = local.resolve_conj().resolve_neg();
    for (const Step& step : plan.steps) {
      local = apply(step, local);
      layout_.placements = step.after;
    }
    return local;
  }

 private:
  Tensor apply(const Step& step, const Tensor& local) {
    const Layout after{layout_.mesh, layout_.shape, step.after};
    switch (step.action) {
      case Action::all_reduce:
        return all_reduce_axis(step.axes[0], local);
      case Action::reduce_scatter:
        return reduce_scatter_axis(step.axes[0], local, after);
      case Action::slice:
        return take(local, grid_of(layout_, here_), grid_of(after, here_));
      case Action::exchange:
        return exchange(step, local, after);
      case Action::keep_one:
        return keep_one(step.axes[0], local, step.after);
    }
    return local;
  }

  ReduceOp partial_op(int64_t axis) const {
    return std::get<Partial>(layout_.placements[static_cast<size_t>(axis)]).op;
  }

  Tensor all_reduce_axis(int64_t axis, const Tensor& local) const {
    Tensor result = local.clone(at::MemoryFormat::Contiguous);
    all_reduce(mesh_.group(axis), result, partial_op(axis)).wait();
    return result;
  }

  Tensor reduce_scatter_axis(int64_t axis, const Tensor& local, const Layout& after) const {
    const RunGrid held = grid_of(layout_, here_);
    const int64_t n = mesh_.size(axis);
    Tensor in = at::empty({local.numel()}, local.options());
    std::vector<int64_t> numels;
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      Dims there = here_;
      there[static_cast<size_t>(axis)] = i;
      const RunGrid rows = grid_of(after, there);
      const int64_t count = numel(rows);
      if (count > 0) in.narrow(0, at, count).view(shape_of(rows)).copy_(take(local, held, rows));
      numels.push_back(count);
      at += count;
    }
    Tensor out = at::empty(local_shape(after, here_), local.options());
    reduce_scatter(mesh_.group(axis), out, in, partial_op(axis), numels).wait();
    return out;
  }

  // The ranks that take part in an exchange along some axes, and their coordinates, in row-major order of the axes.
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
    for (const Dims& member : members) ranks.push_back(layout_.mesh.rank_at(member));
    return mesh_.world().group(ranks);
  }

  // Each rank gets what it lacks from the ranks along the axes that shard the tensor now: together they hold all of
  // it exactly once, so nothing is sent twice.
  Tensor exchange(const Step& step, const Tensor& local, const Layout& after) const {
    const std::vector<Dims> members = peers(step.axes);
    const Group group = group_of(step.axes, members);
    const RunGrid held = grid_of(layout_, here_);
    const RunGrid wanted = grid_of(after, here_);
    bool gather = true;
    for (const int64_t axis : step.axes) gather &= is_replicate(step.after[static_cast<size_t>(axis)]);
    for (size_t axis = 0; axis < here_.size(); ++axis)
      gather &= layout_.placements[axis] == step.after[axis] || is_replicate(step.after[axis]);
    Tensor out = at::empty(shape_of(wanted), local.options());
    std::vector<int64_t> gives;
    std::vector<int64_t> takes;
    std::vector<RunGrid> incoming;
    std::vector<RunGrid> outgoing;
    for (const Dims& member : members) {
      incoming.push_back(intersect(grid_of(layout_, member), wanted));
      takes.push_back(numel(incoming.back()));
      if (gather) continue;
      outgoing.push_back(intersect(held, grid_of(after, member)));
      gives.push_back(numel(outgoing.back()));
    }
    int64_t total = 0;
    for (const int64_t n : takes) total += n;
    Tensor received = at::empty({total}, local.options());
    if (gather) {
      all_gather_uneven(group, received, local.contiguous(), takes).wait();
    } else {
      all_to_all(group, received, pack(local, held, outgoing, gives), takes, gives).wait();
    }
    int64_t at = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      if (takes[i] == 0) continue;
      // A gathered block comes in the order of its owner's local tensor, which is ascending but for strided shards.
      Tensor block = received.narrow(0, at, takes[i]).view(shape_of(incoming[i]));
      at += takes[i];
      if (gather) block = take(block, grid_of(layout_, members[i]), incoming[i]);
      put(out, wanted, incoming[i], block);
    }
    return out;
  }

  static Tensor pack(const Tensor& local, const RunGrid& held, const std::vector<RunGrid>& parts,
                     const std::vector<int64_t>& numels) {
    int64_t total = 0;
    for (const int64_t n : numels) total += n;
    Tensor buffer = at::empty({total}, local.options());
    int64_t at = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (numels[i] == 0) continue;
      buffer.narrow(0, at, numels[i]).view(shape_of(parts[i])).copy_(take(local, held, parts[i]));
      at += numels[i];
    }
    return buffer;
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

  const DeviceMesh& mesh_;
  const Dims& here_;
  Layout layout_;
};

}  // namespace

Tensor move(const plan::Redistribution& plan, const Tensor& local, const DeviceMesh& mesh, const Dims& shape,
            const Placements& from) {
  if (plan.steps.empty() || !mesh.coordinate()) return local;
  return Mover(mesh, shape, from).run(plan, local);
}

Tensor move(const Tensor& local, const DeviceMesh& mesh, const Dims& shape, const Placements& from,
            const Placements& to) {
  if (from == to || !mesh.coordinate()) return local;
  return move(plan::plan_redistribution(mesh.mesh(), shape, static_cast<int64_t>(local.element_size()), from, to),
              local, mesh, shape, from);
}

}  // namespace sherd::detail
