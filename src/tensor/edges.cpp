#include "tensor/edges.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tensor/dispatch.h"
#include "tensor/meta.h"
#include "tensor/move.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What a backward pass needs to know, kept in a context's saved data.
struct Kept : torch::CustomClassHolder {
  explicit Kept(SpecPtr s, Placements p) : spec(std::move(s)), placements(std::move(p)) {}
  SpecPtr spec;
  Placements placements;
};

void keep(AutogradContext* context, SpecPtr spec, Placements placements) {
  context->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(spec), std::move(placements)));
}

const Kept& kept(AutogradContext* context) {
  return *static_cast<Kept*>(context->saved_data["kept"].toCapsule().get());
}

// A gradient may be a plain tensor, equal on all ranks (an expanded scalar, say).
Tensor as_dtensor(const Tensor& grad, const SpecPtr& spec) {
  if (meta_of(grad) != nullptr) return grad;
  const Placements whole(spec->placements.size(), Replicate());
  return wrap(spec_for(spec->mesh, whole, spec->sizes, grad), grad.detach());
}

struct Redistribute : Function<Redistribute> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const Placements& to) {
    const SpecPtr& spec = meta_of(tensor)->spec;
    keep(context, spec, grad_placements_for(spec->placements));
    return redistributed(tensor, to);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    const Kept& before = kept(context);
    return {redistribute_edge(as_dtensor(grads[0], before.spec), before.placements), Tensor()};
  }
};

struct ToLocal : Function<ToLocal> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const Placements& grad_placements) {
    DTensorMeta* meta = meta_of(tensor);
    keep(context, meta->spec, grad_placements);
    return current_local(*meta).alias();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    const Kept& before = kept(context);
    const SpecPtr spec = intern_spec(before.spec->mesh, before.placements, before.spec->sizes, before.spec->strides);
    return {from_local_edge(grads[0], spec, before.placements), Tensor()};
  }
};

struct FromLocal : Function<FromLocal> {
  static Tensor forward(AutogradContext* context, const Tensor& local, const SpecPtr& spec,
                        const Placements& grad_placements) {
    keep(context, spec, grad_placements);
    return wrap(spec, local.detach());
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const Kept& before = kept(context);
    const Tensor grad = redistribute_edge(as_dtensor(grads[0], before.spec), before.placements);
    return {to_local_edge(grad, grad_placements_for(before.placements)), Tensor(), Tensor()};
  }
};

}  // namespace

Placements grad_placements_for(Placements placements) {
  for (Placement& p : placements) {
    if (is_partial(p)) p = Replicate();
  }
  return placements;
}

Tensor redistributed(const Tensor& tensor, const Placements& to) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  DTensorMeta* meta = meta_of(tensor);
  Tensor local = move(current_local(*meta), meta->spec->mesh, meta->spec->sizes, meta->spec->placements, to);
  // A result never shares memory with its source, as in every other operator that is not a view.
  if (local.numel() > 0 && local.is_alias_of(meta->local)) local = local.clone();
  return wrap(intern_spec(meta->spec->mesh, to, meta->spec->sizes, meta->spec->strides), local);
}

Tensor redistribute_edge(const Tensor& tensor, const Placements& to) {
  if (meta_of(tensor)->spec->placements == to) return tensor;
  if (c10::GradMode::is_enabled()) {
    const DTensorMeta* meta = meta_of(tensor);
    if (!meta->leaf_is_settled) hook_leaf(tensor);
  }
  return Redistribute::apply(tensor, to);
}

Tensor to_local_edge(const Tensor& tensor, const Placements& grad_placements) {
  if (c10::GradMode::is_enabled() && !meta_of(tensor)->leaf_is_settled) hook_leaf(tensor);
  if (!c10::GradMode::is_enabled() || !tensor.requires_grad()) return current_local(*meta_of(tensor));
  return ToLocal::apply(tensor, grad_placements);
}

Tensor from_local_edge(const Tensor& local, const SpecPtr& spec, const Placements& grad_placements) {
  return FromLocal::apply(local, spec, grad_placements);
}

void hook_leaf(const Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr || !tensor.requires_grad()) return;
  meta_of(tensor)->leaf_is_settled = true;
  if (!tensor.is_leaf()) return;
  // The hook holds no reference to the tensor, which holds the hook.
  const SpecPtr spec = meta_of(tensor)->spec;
  tensor.register_hook([spec](const Tensor& grad) {
    if (!grad.defined()) return grad;
    return redistribute_edge(as_dtensor(grad, spec), grad_placements_for(spec->placements));
  });
}

}  // namespace sherd::detail
