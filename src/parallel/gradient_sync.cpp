#include "parallel/gradient_sync.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "sherd/dtensor.h"
#include "tensor/cause_of.h"
#include "tensor/edges.h"
#include "tensor/joint_mesh.h"
#include "tensor/leaf_hooks.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// Where a gradient waits for its reduction: Partial on data axes where it is, the parameter's placements elsewhere.
Placements waiting_placements(const Placements& grad, const Placements& parameter, uint64_t data_axes) {
  Placements result = grad_placements_for(parameter);
  for (size_t axis = 0; axis < result.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&grad[axis]);
    if ((data_axes >> axis & 1) != 0 && partial != nullptr && partial->op == ReduceOp::sum) result[axis] = *partial;
  }
  return result;
}

// A gradient of the same placements whose part lies in the memory of `device`.
Tensor in_memory_of(const c10::Device& device, const Tensor& grad) {
  DTensorMeta* meta = meta_of(grad);
  if (meta->local.device() == device) return grad;
  const auto options = meta->local.options().device(device).pinned_memory(device.is_cpu());
  return wrap(meta->spec, at::empty(meta->local.sizes(), options).copy_(meta->local));
}

}  // namespace

struct GradientSync::Arrival final : torch::autograd::PostAccumulateGradHook {
  Arrival(std::shared_ptr<GradientSync> s, size_t i) : sync(std::move(s)), slot(i) {}
  void operator()(const Tensor&) override { sync->after(slot); }
  std::shared_ptr<GradientSync> sync;
  size_t slot;
};

// Lives as long as a backward pass does. One that was stopped by an error never reaches its end.
struct GradientSync::Pass {
  explicit Pass(std::shared_ptr<GradientSync> s) : sync(std::move(s)) {}
  ~Pass() {
    if (!ended) sync->abandon();
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  void end() {
    ended = true;
    sync->end();
  }
  std::shared_ptr<GradientSync> sync;
  bool ended = false;
};

void GradientSync::add_bucket(const std::vector<Member>& members) {
  const size_t number = buckets_.size();
  buckets_.emplace_back();
  for (const Member& member : members) {
    const size_t slot = slots_.size();
    slots_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(member.parameter.getIntrusivePtr()), member.data_axes,
                      number, Tensor(), false});
    buckets_.back().slots.push_back(slot);
    meta_of(member.parameter)->leaf_is_settled = true;  // by this hook instead of the usual one
    register_leaf_hook(member.parameter,
                       {[self = shared_from_this(), slot](const Tensor& grad) { return self->before(slot, grad); }});
    torch::autograd::impl::set_post_acc_grad_hooks(member.parameter,
                                                   std::make_unique<Arrival>(shared_from_this(), slot));
  }
}

Tensor GradientSync::before(size_t index, const Tensor& grad) {
  Slot& slot = slots_[index];
  const auto impl = slot.parameter.lock();
  if (!impl || !grad.defined()) return grad;
  Bucket& bucket = buckets_[slot.bucket];
  if (bucket.pending) finish(bucket);  // a second gradient within one pass, from a nested one
  const Tensor parameter(impl);
  const SpecPtr spec = meta_of(parameter)->spec;
  Tensor& old = parameter.mutable_grad();
  if (paused_ == 0 && old.defined() && meta_of(old) != nullptr && !meta_of(old)->spec->has_partial) {
    slot.settled = old;
    old = Tensor();
  }
  if (const DTensorMeta* rested = meta_of(old)) {
    if (rested->local.device() != parameter.device()) old = in_memory_of(parameter.device(), old);
  }
  const DTensorMeta* meta = meta_of(grad);
  if (meta != nullptr && meta->spec == spec && !spec->has_partial) return grad;
  const CauseScope cause("gradient", [&](Cause& c) { about(c, parameter); });
  const Placements now = meta != nullptr ? lifted_placements(meta->spec->placements, meta->spec->mesh, spec->mesh)
                                         : Placements(spec->placements.size(), Replicate());  // equal on all ranks
  return gradient_for(grad, spec, waiting_placements(now, spec->placements, slot.data_axes));
}

void GradientSync::after(size_t index) {
  Slot& slot = slots_[index];
  if (paused_ != 0) return;
  const int pass = torch::autograd::get_current_graph_task_id();
  if (pass != pass_) {
    pass_ = pass;
    auto under_way = std::make_shared<Pass>(shared_from_this());
    torch::autograd::Engine::get_default_engine().queue_callback([under_way] { under_way->end(); });
  }
  if (slot.arrived) return;
  slot.arrived = true;
  Bucket& bucket = buckets_[slot.bucket];
  if (++bucket.arrived == bucket.slots.size()) start(bucket);
}

void GradientSync::start(Bucket& bucket) {
  std::vector<Tensor> grads;
  std::vector<Placements> to;
  bucket.moving.clear();
  for (const size_t index : bucket.slots) {
    const auto impl = slots_[index].parameter.lock();
    if (!slots_[index].arrived || !impl) continue;
    const Tensor parameter(impl);
    const Tensor grad = parameter.grad();
    const DTensorMeta* meta = grad.defined() ? meta_of(grad) : nullptr;
    if (meta == nullptr) continue;
    const SpecPtr& wanted = meta_of(parameter)->spec;
    const bool is_there = meta->spec == wanted && !wanted->has_partial;
    Placements target = is_there ? Placements() : grad_placements_for(wanted->placements);
    if (is_there || meta->spec->placements == target) {
      settle(slots_[index], grad);
      continue;
    }
    grads.push_back(grad.detach());
    to.push_back(std::move(target));
    bucket.moving.push_back(index);
  }
  if (grads.empty()) return;
  const CauseScope cause("gradient bucket", [&](Cause& c) {
    c.backward = true;
    for (const size_t index : bucket.moving) {
      if (const auto impl = slots_[index].parameter.lock()) about(c, Tensor(impl));
    }
  });
  bucket.pending = redistribute_async(grads, to, options_);
}

void GradientSync::finish(Bucket& bucket) {
  if (!bucket.pending) return;
  PendingTensors pending = std::move(*bucket.pending);
  bucket.pending.reset();
  const std::vector<Tensor> reduced = pending.wait();
  for (size_t i = 0; i < reduced.size(); ++i) settle(slots_[bucket.moving[i]], reduced[i]);
}

// A gradient that lies as its parameter does takes its place.
void GradientSync::settle(Slot& slot, const Tensor& reduced) {
  slot.arrived = false;
  --buckets_[slot.bucket].arrived;
  const Tensor settled = std::exchange(slot.settled, Tensor());
  const auto impl = slot.parameter.lock();
  if (!impl) return;
  const c10::AutoGradMode no_grad(false);
  const Tensor parameter(impl);
  const Tensor sum =
      settled.defined() ? settled.add_(in_memory_of(meta_of(settled)->local.device(), reduced)) : reduced;
  parameter.mutable_grad() = in_memory_of(meta_of(parameter)->local.device(), sum);
}

void GradientSync::end() {
  pass_ = -1;
  for (Bucket& bucket : buckets_) {
    if (!bucket.pending && bucket.arrived > 0) start(bucket);
  }
  for (Bucket& bucket : buckets_) {
    finish(bucket);
  }
  for (const auto& act : ends_) act();
}

// Gradients that the pass was to be added to are as they were before it.
void GradientSync::abandon() {
  pass_ = -1;
  for (Slot& slot : slots_) {
    slot.arrived = false;
    const auto impl = slot.parameter.lock();
    if (impl && slot.settled.defined()) Tensor(impl).mutable_grad() = slot.settled;
    slot.settled = Tensor();
  }
  for (Bucket& bucket : buckets_) {
    bucket.arrived = 0;
    bucket.pending.reset();
  }
  for (const auto& act : ends_) act();
}

}  // namespace sherd::detail
