#include "parallel/units.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "layout/reordered.h"
#include "sherd/dtensor.h"
#include "tensor/cause_of.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/op_plan.h"

namespace sherd::detail {
namespace {

using at::Tensor;

Placements whole_placements(const Spec& spec) {
  Placements result = spec.placements;
  for (size_t axis = 0; axis < result.size(); ++axis) {
    if ((spec.gathers >> axis & 1) != 0) result[axis] = Replicate();
  }
  return result;
}

// The dims of the parameter that are dims 0, 1, ... of a view that only changes their order.
std::optional<std::vector<int64_t>> order_of(const Spec& view, const Spec& parameter) {
  const size_t ndim = parameter.sizes.size();
  if (view.sizes.size() != ndim) return std::nullopt;
  std::vector<int64_t> order;
  std::vector<bool> used(ndim, false);
  for (size_t d = 0; d < ndim; ++d) {
    size_t from = 0;
    while (from < ndim &&
           (used[from] || parameter.sizes[from] != view.sizes[d] || parameter.strides[from] != view.strides[d])) {
      ++from;
    }
    if (from == ndim) return std::nullopt;
    used[from] = true;
    order.push_back(static_cast<int64_t>(from));
  }
  return order;
}

}  // namespace

// What an operator finds at a parameter, and at the views of it.
struct Units::Parameter final : Gathering {
  Parameter(std::shared_ptr<Units> of, size_t u, size_t i) : units(std::move(of)), unit(u), index(i) {}
  Tensor take(const DTensorMeta& use, const InputPlan& how) override { return units->take(unit, index, use, how); }
  std::shared_ptr<Units> units;
  size_t unit;
  size_t index;
};

// What is gathered may be taken any number of times: until the backward pass comes to it, or until that is over.
enum class Units::Keep : uint8_t { nothing, until_backward, until_end };

struct Units::Unit {
  std::vector<c10::weak_intrusive_ptr<DTensorMeta>> parameters;
  std::vector<c10::VariableVersion> writes;  // to each of them
  std::vector<Tensor> gathered;              // local tensors; undefined where taken
  std::optional<PendingTensors> pending;
  std::optional<size_t> first;  // the parameter that is asked for first
  Keep keep = Keep::nothing;
  uint64_t versions = 0;  // of the parameters when they were gathered
  int pass = -1;          // the backward pass in which it was opened, or none
};

void Units::add_unit(const std::vector<Tensor>& parameters) {
  auto unit = std::make_shared<Unit>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    DTensorMeta* meta = meta_of(parameters[i]);
    unit->parameters.emplace_back(c10::intrusive_ptr<DTensorMeta>::reclaim_copy(meta));
    unit->writes.push_back(parameters[i].unsafeGetTensorImpl()->version_counter());
    meta->gathered = std::make_shared<Parameter>(shared_from_this(), units_.size(), i);
  }
  units_.push_back(std::move(unit));
}

// Grows with every write to a parameter.
uint64_t Units::versions_of(const Unit& unit) {
  uint64_t sum = 0;
  for (const auto& writes : unit.writes) sum += writes.current_version();
  return sum;
}

void Units::release() {
  for (const auto& unit : units_) {
    unit->gathered.clear();
    unit->pending.reset();
    unit->keep = Keep::nothing;
  }
  open_.reset();
  before_.reset();
  seen_.clear();
}

// A rank's part of a parameter, where and in the type in which it is used.
Tensor Units::for_use(const Tensor& local, const DeviceMesh& mesh) const {
  Tensor there = local;
  if (local.device() != mesh.device()) {
    // By a stream of its own, so that this waits for the copy and not for all that the device has been given to do.
    const c10::impl::VirtualGuardImpl devices(mesh.device_type());
    const c10::Stream main = devices.getStream(mesh.device());
    {
      const c10::StreamGuard aside(devices.getStreamFromGlobalPool(mesh.device()));
      there = local.to(mesh.device());
    }
    there.record_stream(main);
  }
  return options_.dtype ? there.to(*options_.dtype) : there;
}

void Units::start(Unit& unit) {
  std::vector<Tensor> tensors;
  std::vector<Placements> to;
  for (const auto& weak : unit.parameters) {
    const auto meta = weak.lock();
    if (!meta) continue;
    Tensor part = wrap(intern_spec(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, meta->spec->strides),
                       for_use(current_local(*meta), meta->spec->mesh));
    to.push_back(whole_placements(*meta->spec));
    tensors.push_back(std::move(part));
  }
  unit.versions = versions_of(unit);
  const CauseScope cause("gather on use", [&](Cause& c) {
    for (const auto& weak : unit.parameters) {
      if (const auto meta = weak.lock()) about(c, meta->local);
    }
  });
  unit.pending = redistribute_async(tensors, to);
}

// Notes that a unit comes into use now.
void Units::follow(size_t number) {
  if (before_ && open_) next_[{*before_, *open_}] = number;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (i == number) continue;
    if (units_[i]->keep != Keep::until_end) units_[i]->gathered.clear();
    units_[i]->pending.reset();  // it was expected and did not come
  }
  if (!seen_.insert(number).second) seen_ = {number};
  before_ = open_ ? open_ : std::optional(number);
  open_ = number;
  units_[number]->pass = torch::autograd::get_current_graph_task_id();
}

std::optional<size_t> Units::expected() const {
  const auto next = next_.find({*before_, *open_});
  return next == next_.end() ? std::nullopt : std::optional(next->second);
}

void Units::start_next() {
  const auto next = expected();
  if (!options_.prefetch || !next || seen_.count(*next) != 0) return;
  Unit& coming = *units_[*next];
  if (coming.keep != Keep::until_end && !coming.pending) start(coming);
}

void Units::open(size_t number) {
  Unit& unit = *units_[number];
  if (unit.pending && unit.versions != versions_of(unit)) unit.pending.reset();
  if (!unit.pending) start(unit);
  follow(number);
  const std::vector<Tensor> whole = unit.pending->wait();
  unit.pending.reset();
  unit.gathered.assign(unit.parameters.size(), Tensor());
  size_t k = 0;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    if (!unit.parameters[i].expired()) unit.gathered[i] = meta_of(whole[k++])->local;
  }
  unit.keep = Keep::nothing;
  if (c10::GradMode::is_enabled()) {
    // The last unit of a forward pass is the first one of the backward pass.
    if (expected() == number) unit.keep = Keep::until_backward;
    if (options_.keep_until_backward) unit.keep = Keep::until_end;
  }
  start_next();
}

Tensor Units::take(size_t number, size_t index, const DTensorMeta& use, const InputPlan& how) {
  Unit& unit = *units_[number];
  const auto parameter = unit.parameters[index].lock();
  if (!parameter) return Tensor();
  const Spec& spec = *parameter->spec;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto alone = [&] {
    const bool as_it_is = !options_.dtype && use.local.device() == use.spec->mesh.device();
    return as_it_is ? Tensor()
                    : move(how.move, for_use(use.local, use.spec->mesh), use.spec->mesh, how.shape, how.from);
  };
  if (!(use.spec->mesh == spec.mesh)) return alone();  // lifted onto a larger mesh
  const auto order = order_of(*use.spec, spec);
  if (!order || how.to != reordered(whole_placements(spec), *order)) return alone();
  const auto there = [&] { return index < unit.gathered.size() && unit.gathered[index].defined(); };
  const bool stale = unit.keep != Keep::nothing && unit.versions != versions_of(unit);
  const int pass = torch::autograd::get_current_graph_task_id();
  if (!there() || stale) {
    // A second use within one round brings this parameter alone; the one that began the last round begins another.
    const bool same_round = open_ == number && !unit.gathered.empty() && unit.pass == pass && unit.first != index;
    if (same_round && !stale) return alone();
    unit.first = index;
    open(number);
  } else if (unit.keep == Keep::until_backward && unit.pass != pass) {
    unit.first = index;
    unit.keep = Keep::nothing;
    follow(number);
    start_next();
  }
  Tensor local = unit.gathered[index];
  if (unit.keep == Keep::nothing) unit.gathered[index] = Tensor();
  return local.permute(*order);
}

}  // namespace sherd::detail
