#include "tensor/crossing.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>

#include "comm/huge_pages.h"
#include "comm/reduce_tensors.h"
#include "comm/step_scope.h"
#include "plan/places.h"
#include "plan/relabel.h"
#include "sherd/world.h"
#include "tensor/costs.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"
#include "tensor/runs.h"
#include "tensor/swap_parts.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::Action;
using plan::RunGrid;

struct CrossingKey {
  SpecPtr from;
  SpecPtr to;
  c10::ScalarType dtype;
  RedistributeOptions::Prefer prefer;
  bool relabel;
  uint64_t costs;  // by their version
  bool operator==(const CrossingKey&) const = default;
};
struct CrossingKeyHash {
  size_t operator()(const CrossingKey& key) const {
    size_t hash = reinterpret_cast<size_t>(key.from.get()) * 0x9E3779B97F4A7C15ULL;
    hash ^= reinterpret_cast<size_t>(key.to.get()) + (hash >> 17);
    return hash * 31 + static_cast<size_t>(key.dtype) * 8 + static_cast<size_t>(key.prefer) * 2 + (key.relabel ? 1 : 0);
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
  const plan::PlanOptions options{.prefer = plan_preference(key.prefer), .costs = current_costs()};
  way->plan = plan::plan_crossing(before, after, static_cast<int64_t>(c10::elementSize(key.dtype)), options);
  way->text = describe(from, key.dtype) + " -> " + to_string(key.to->placements) + " on " + to_string(key.to->mesh);
  way->purpose = std::make_shared<Purpose>("redistribute " + way->text);
  const auto& was = from.mesh.coordinate();
  const auto& is = way->target->mesh.coordinate();
  if (was && from.mesh.size() > 1) way->source = world.group(before.mesh.ranks());
  if (!was && !is) return way;
  std::vector<int64_t> ranks = before.mesh.ranks();
  for (const int64_t more : after.mesh.ranks()) ranks.push_back(more);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  way->all = world.group(ranks);
  if (!reduces(*way)) {
    way->transfers = plan::transfers(before, after, world.rank());
    return way;
  }
  const bool shared = way->plan.steps.size() > 1;
  way->reductions = plan::reductions(before, after, world.rank(), shared);
  if (shared && is) {
    std::vector<int64_t> alike;
    plan::for_each_replica(after.mesh, plan::place_of(after, *is),
                           [&](const Dims& there) { alike.push_back(after.mesh.rank_at(there)); });
    way->alike = world.group(alike);
  }
  return way;
}

// What the parts of an element are reduced by. Sums and averages may stand beside each other; other reductions do not.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  int64_t divisor = 1;  // of the result
};
Reduction reduction_of(const Layout& layout) {
  std::vector<ReduceOp> ops;
  int64_t averaged = 1;
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&layout.placements[axis]);
    if (partial == nullptr) continue;
    ops.push_back(partial->op);
    if (partial->op == ReduceOp::avg) averaged *= layout.mesh.axes()[axis].size;
  }
  const bool alike = std::all_of(ops.begin(), ops.end(), [&](ReduceOp op) { return op == ops.front(); });
  return alike ? Reduction{ops.front()} : Reduction{ReduceOp::sum, averaged};
}

// Nobody adds up complex numbers of 16 bits.
c10::ScalarType reduce_dtype_for(c10::ScalarType dtype, const RedistributeOptions& options) {
  const c10::ScalarType chosen = options.reduce_dtype.value_or(dtype);
  return chosen == c10::ScalarType::ComplexHalf ? c10::ScalarType::ComplexFloat : chosen;
}

// Carries out a crossing on the local tensor.
class Walk {
 public:
  Walk(const Crossing& way, Tensor local, const RedistributeOptions& options)
      : way_(way),
        before_(way.from->layout()),
        after_(way.target->layout()),
        held_{std::move(local), grid_at(way.from->mesh, before_)},
        options_(options) {}

  Tensor exchange() {
    const int64_t bytes = 2 * std::max(largest_part(before_), largest_part(after_)) * element();
    const HeldPart result = new_result(held_.tensor.options());
    const auto text = [&] { return text_of(0); };
    const StepScope scope(text);
    swap_parts(*way_.all, {held_}, {result}, way_.transfers, bytes, options_.staging_bytes);
    return result.tensor;
  }

  Tensor reduce() {
    const plan::Reductions& work = way_.reductions;
    const HeldPart result = new_result(held_.tensor.options());
    std::vector<HeldPart> pieces;
    for (const RunGrid& rows : work.pieces) {
      pieces.push_back(way_.alike ? HeldPart{empty_large(plan::shape_of(rows), held_.tensor.options()), rows} : result);
    }
    // What arrives before it is reduced, and what others are sent.
    const auto parts = static_cast<int64_t>(work.parts);
    const int64_t rounds =
        rounds_for((parts * largest_part(after_) + largest_part(before_)) * element(), options_.staging_bytes);
    for (int64_t round = 0; round < rounds; ++round) reduce_share(rounds, round, pieces);
    return way_.alike ? shared_with_others(std::move(pieces), result) : result.tensor;
  }

 private:
  static RunGrid grid_at(const DeviceMesh& mesh, const Layout& layout) {
    return mesh.coordinate() ? plan::grid_of(layout, *mesh.coordinate()) : RunGrid(layout.shape.size());
  }
  std::string text_of(size_t step) const { return to_string(way_.plan.steps[step], way_.target->mesh.mesh()); }
  int64_t element() const { return static_cast<int64_t>(held_.tensor.element_size()); }

  HeldPart new_result(const at::TensorOptions& options) const {
    return {empty_large(way_.target->local_sizes, options), grid_at(way_.target->mesh, after_)};
  }

  static void take_share(std::vector<plan::Transfer>& transfers, int64_t count, int64_t index) {
    for (plan::Transfer& transfer : transfers) {
      transfer.rows = plan::share_of(std::move(transfer.rows), count, index);
    }
  }

  // One round: the parts of a share of each piece come here and are reduced, in one order on every rank.
  void reduce_share(int64_t rounds, int64_t round, const std::vector<HeldPart>& pieces) const {
    const plan::Reductions& work = way_.reductions;
    plan::Transfers transfers = work.contributions;
    take_share(transfers.gives, rounds, round);
    take_share(transfers.takes, rounds, round);
    std::vector<HeldPart> parts;
    for (const RunGrid& piece : work.pieces) {
      const RunGrid rows = plan::share_of(piece, rounds, round);
      for (size_t c = 0; c < work.parts; ++c) {
        parts.push_back({at::empty(plan::shape_of(rows), held_.tensor.options()), rows});
      }
    }
    const std::vector<HeldPart> arrived = parts;
    const auto text = [&] { return text_of(0); };
    const StepScope scope(text);
    swap_parts(*way_.all, {held_}, std::move(parts), transfers, 0, options_.staging_bytes);
    const Reduction reduction = reduction_of(before_);
    c10::ScalarType dtype = reduce_dtype_for(held_.tensor.scalar_type(), options_);
    // The sum of what is averaged afterwards may be more than 16 bits hold.
    if (reduction.divisor > 1 && c10::isReducedFloatingType(dtype)) dtype = c10::ScalarType::Float;
    for (size_t p = 0; p < pieces.size(); ++p) {
      const HeldPart& first = arrived[p * work.parts];
      if (first.tensor.numel() == 0) continue;
      std::vector<Tensor> given;
      for (size_t c = 0; c < work.parts; ++c) given.push_back(arrived[p * work.parts + c].tensor.to(dtype));
      const Tensor value = at::empty(first.tensor.sizes(), given.front().options());
      reduce_into(value, given, reduction.op);
      if (reduction.divisor > 1) value.div_(reduction.divisor);
      put(pieces[p].tensor, pieces[p].rows, first.rows, value.to(held_.tensor.scalar_type()));
    }
  }

  Tensor shared_with_others(std::vector<HeldPart> pieces, const HeldPart& result) const {
    const c10::ScalarType dtype = options_.move_dtype.value_or(result.tensor.scalar_type());
    for (HeldPart& piece : pieces) piece.tensor = piece.tensor.to(dtype);
    const HeldPart whole{result.tensor.to(dtype), result.rows};
    const int64_t bytes = 2 * largest_part(after_) * static_cast<int64_t>(whole.tensor.element_size());
    const auto text = [&] { return text_of(1); };
    const StepScope scope(text);
    swap_parts(*way_.alike, std::move(pieces), {whole}, way_.reductions.results, bytes, options_.staging_bytes);
    return whole.tensor;
  }

 private:
  const Crossing& way_;
  const Layout before_;
  const Layout after_;
  const HeldPart held_;
  const RedistributeOptions& options_;
};

}  // namespace

CrossingPtr crossing_between(const SpecPtr& from, const SpecPtr& to, c10::ScalarType dtype,
                             const RedistributeOptions& options) {
  thread_local std::unordered_map<CrossingKey, CrossingPtr, CrossingKeyHash> ways;
  CrossingKey key{from, to, dtype, options.prefer, options.relabel, costs_version()};
  if (const auto found = ways.find(key); found != ways.end()) return found->second;
  if (ways.size() >= kCrossingsKept) ways.clear();
  CrossingPtr way = make_crossing(key);
  ways.emplace(std::move(key), way);
  return way;
}

Tensor crossed(const Crossing& way, const Tensor& local, const RedistributeOptions& options) {
  const c10::ScalarType dtype = local.scalar_type();
  const bool sums = reduces(way);
  if (sums) {  // the same on every rank
    const auto like = local.options().dtype(reduce_dtype_for(dtype, options));
    const Reduction reduction = reduction_of(way.from->layout());
    check_reduction("redistribute", at::empty({0}, like), reduction.divisor > 1 ? ReduceOp::avg : reduction.op);
  }
  if (!way.all || local.is_meta()) return wrap(way.target, at::empty(way.target->local_sizes, local.options()));
  // Bytes are sent as they lie in memory: a lazily conjugated or negated tensor is made real first.
  Tensor given = local.resolve_conj().resolve_neg();
  if (!sums) given = given.to(options.move_dtype.value_or(dtype));
  const PurposeScope purpose(way.purpose);
  Walk walk(way, given.contiguous(), options);
  return wrap(way.target, (sums ? walk.reduce() : walk.exchange()).to(dtype));
}

}  // namespace sherd::detail
