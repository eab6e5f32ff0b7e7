#include "tensor/edges.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plan/placement_lists.h"
#include "tensor/cause_of.h"
#include "tensor/dispatch.h"
#include "tensor/held_boxes.h"
#include "tensor/leaf_hooks.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What a backward pass needs to know, kept in a context's saved data.
struct Kept : torch::CustomClassHolder {
  Kept(SpecPtr s, Placements p, const RedistributeOptions& o)
      : spec(std::move(s)), placements(std::move(p)), options(o) {}
  SpecPtr spec;
  Placements placements;
  RedistributeOptions options;
};

void keep(AutogradContext* context, SpecPtr spec, Placements placements, const RedistributeOptions& options = {}) {
  context->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(spec), std::move(placements), options));
}

void keep_origin(AutogradContext* context, const Tensor& tensor, RedistributeOptions options) {
  const SpecPtr& spec = meta_of(tensor)->spec;
  options.relabel = false;  // the gradient goes back to the very places
  keep(context, spec, grad_placements_for(spec->placements), options);
}

const Kept& kept(AutogradContext* context) {
  return *static_cast<Kept*>(context->saved_data["kept"].toCapsule().get());
}

// A leaf whose gradient may be asked for gets it in its own placements.
void settle_leaf(const Tensor& tensor) { hook_leaf(tensor); }

// A gradient may be a plain tensor, equal on all ranks (an expanded scalar, say).
Tensor as_dtensor(const Tensor& grad, const SpecPtr& spec) {
  if (meta_of(grad) != nullptr) return grad;
  const Placements whole(spec->placements.size(), Replicate());
  const Tensor local = spec->mesh.coordinate() ? grad.detach() : at::empty({0}, grad.options());
  return wrap(spec_for(spec->mesh, whole, spec->sizes, grad), local);
}

// A gradient on the mesh of a leaf, or of whatever it belongs to: it may come from a larger slice of the same mesh.
Tensor brought_to(const Tensor& grad, const SpecPtr& spec, const Placements& to,
                  const RedistributeOptions& options = {}) {
  if (meta_of(grad)->spec->mesh == spec->mesh) return redistribute_edge(grad, to, options);
  return redistribute_edge(grad, spec->mesh, to, options);
}

// The gradient of a tensor that was moved goes back to where the tensor was.
Tensor brought_back(const Tensor& grad, const Kept& before) {
  if (!grad.defined()) return grad;
  const CauseScope cause("redistribute");
  const Tensor there = as_dtensor(grad, before.spec);
  if (before.spec->boxes) return to_boxes_edge(there, before.spec);
  return brought_to(there, before.spec, before.placements, before.options);
}

// A gradient as the leaf that it reaches lies.
Tensor brought_to_leaf(const Tensor& grad, const DTensorMeta& leaf) {
  const SpecPtr spec = leaf.spec;
  const DTensorMeta* given = meta_of(grad);
  if (given != nullptr && given->spec == spec && !spec->has_partial && !spec->boxes) return grad;
  const CauseScope cause("gradient", [&](Cause& c) { about(c, leaf.local); });
  if (spec->boxes) return to_boxes_edge(grad, spec);
  return gradient_for(grad, spec, grad_placements_for(spec->placements));
}

// A tensor that was made of another one by moving it, below autograd.
struct Moved : Function<Moved> {
  struct Result {  // no input of the function
    Tensor tensor;
  };
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const Result& moved,
                        const RedistributeOptions& options) {
    hook_leaf(tensor);  // now that there is a graph
    keep_origin(context, tensor, options);
    return moved.tensor;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {brought_back(grads[0], kept(context)), Tensor(), Tensor()};
  }
};

struct ToLocal : Function<ToLocal> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const Placements& grad_placements) {
    DTensorMeta* meta = meta_of(tensor);
    hook_leaf(tensor);  // now that there is a graph
    keep(context, meta->spec, grad_placements);
    return current_local(*meta).alias();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    const Kept& before = kept(context);
    if (before.spec->boxes) {
      // The gradient of a box of pieces may be a plain tensor (an expanded number, say).
      const bool plain = boxes_of(grads[0]) == nullptr;
      const Tensor grad = plain ? cut_into(before.spec->boxes->local, grads[0].detach()) : grads[0];
      return {from_local_edge(grad, before.spec, {}), Tensor()};
    }
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
    const CauseScope cause("from_local");
    const Tensor given = as_dtensor(grads[0], before.spec);
    const Tensor grad =
        before.spec->boxes ? to_boxes_edge(given, before.spec) : brought_to(given, before.spec, before.placements);
    return {to_local_edge(grad, grad_placements_for(before.placements)), Tensor(), Tensor()};
  }
};

// A rank outside the mesh has none, and keeps what it is given.
at::TensorBase plain_gradient(const at::TensorBase& given) {
  if (!given.defined()) return given;
  const Tensor grad(given);
  const DTensorMeta* meta = meta_of(grad);
  if (meta == nullptr || !meta->spec->mesh.coordinate()) return given;
  const CauseScope cause("gradient", [&](Cause& c) { about(c, grad); });
  const Placements whole(meta->spec->placements.size(), Replicate());
  const Tensor everywhere = redistribute_edge(grad, whole);
  const Tensor plain = to_local_edge(everywhere, whole);
  // Other leaves may be given the same gradient, and each has its own memory.
  return everywhere.is_same(grad) ? plain.clone() : plain;
}

}  // namespace

Placements grad_placements_for(Placements placements) { return plan::without_partials(std::move(placements)); }

Tensor redistribute_edge(const Tensor& tensor, const Placements& to, const RedistributeOptions& options) {
  const Spec& from = *meta_of(tensor)->spec;
  if (!from.boxes && from.placements == to) return tensor;
  return moved_edge(tensor, redistributed(tensor, to, options), options);
}

std::vector<Tensor> redistribute_edges(const std::vector<Tensor>& tensors, const std::vector<Placements>& to,
                                       const RedistributeOptions& options) {
  std::vector<Tensor> results = redistributed(tensors, to, options);
  for (size_t i = 0; i < tensors.size(); ++i) results[i] = moved_edge(tensors[i], results[i], options);
  return results;
}

std::vector<Tensor> redistribute_edges(const std::vector<Tensor>& tensors, const DeviceMesh& mesh,
                                       const std::vector<Placements>& to, const RedistributeOptions& options) {
  std::vector<Tensor> results = redistributed(tensors, mesh, to, options);
  for (size_t i = 0; i < tensors.size(); ++i) results[i] = moved_edge(tensors[i], results[i], options);
  return results;
}

Tensor redistribute_edge(const Tensor& tensor, const DeviceMesh& mesh, const Placements& to,
                         const RedistributeOptions& options) {
  return redistribute_edges({tensor}, mesh, {to}, options).front();
}

Tensor moved_edge(const Tensor& tensor, const Tensor& moved, const RedistributeOptions& options) {
  settle_leaf(tensor);
  if (moved.is_same(tensor) || !c10::GradMode::is_enabled() || !tensor.requires_grad()) return moved;
  return Moved::apply(tensor, Moved::Result{moved}, options);
}

Tensor to_boxes_edge(const Tensor& tensor, const SpecPtr& spec) {
  const Tensor given = as_dtensor(tensor, spec);
  const Tensor there = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return brought_to_boxes(given, spec);
  }();
  return moved_edge(given, there, {});
}

Tensor to_local_edge(const Tensor& tensor, const Placements& grad_placements) {
  settle_leaf(tensor);
  // Another handle on the same memory: what a program makes of it, a leaf say, the DTensor's own part does not become.
  if (!c10::GradMode::is_enabled() || !tensor.requires_grad()) return current_local(*meta_of(tensor)).detach();
  return ToLocal::apply(tensor, grad_placements);
}

Tensor from_local_edge(const Tensor& local, const SpecPtr& spec, const Placements& grad_placements) {
  return FromLocal::apply(local, spec, grad_placements);
}

Tensor gradient_for(const Tensor& grad, const SpecPtr& spec, const Placements& to) {
  return brought_to(as_dtensor(grad, spec), spec, to);
}

bool fits_parts(const Spec& spec, const Placements& grad_placements) {
  if (spec.boxes || grad_placements_for(spec.placements) == grad_placements_for(grad_placements)) return true;
  const Layout own = spec.layout();
  const Layout gradient{own.mesh, own.shape, grad_placements};
  for (int64_t i = 0; i < own.mesh.size(); ++i) {
    const Dims coordinate = own.mesh.coordinate_at(i);
    if (local_shape(own, coordinate) != local_shape(gradient, coordinate) ||
        local_boxes(own, coordinate) != local_boxes(gradient, coordinate)) {
      return false;
    }
  }
  return true;
}

void hook_leaf(const Tensor& tensor) {
  // As torch keeps it: this is asked for every tensor of a graph that an operator meets.
  const auto* autograd =
      static_cast<const torch::autograd::AutogradMeta*>(tensor.unsafeGetTensorImpl()->autograd_meta());
  if (autograd == nullptr || !autograd->requires_grad_ || autograd->grad_fn_) return;
  // Where nothing is recorded, a graph leads to the leaf all the same if this is the forward of a user's Function.
  // Other leaves wait: what trains a module may yet settle them in its own way.
  if (!c10::GradMode::is_enabled() && autograd->grad_accumulator_.expired()) return;
  DTensorMeta* meta = meta_of(tensor);
  if (meta->leaf_is_settled && autograd->cpp_hooks_list_) {  // torch drops them while it is no leaf
    keep_leaf_hooks(tensor);
    return;
  }
  meta->leaf_is_settled = true;
  // The hook holds no reference to the tensor, which holds the hook. With other data (set_data) the tensor has another
  // meta, and another hook.
  const auto own = c10::intrusive_ptr<DTensorMeta>::reclaim_copy(meta);
  const c10::weak_intrusive_ptr<DTensorMeta> watched(own);
  register_leaf_hook(tensor, {.run =
                                  [watched](const Tensor& grad) {
                                    const auto leaf = watched.lock();
                                    return grad.defined() && leaf ? brought_to_leaf(grad, *leaf) : grad;
                                  },
                              .is_over = [watched] { return watched.expired(); }});
}

void settle(const Tensor& tensor) {
  if (meta_of(tensor) != nullptr) {
    hook_leaf(tensor);
  } else if (tensor.defined() && !has_meta(tensor.unsafeGetTensorImpl())) {
    hook_plain(tensor);
  }
}

void hook_plain(const Tensor& tensor) {
  const auto* autograd =
      static_cast<const torch::autograd::AutogradMeta*>(tensor.unsafeGetTensorImpl()->autograd_meta());
  if (autograd == nullptr || (!autograd->grad_fn_ && !autograd->requires_grad_)) return;
  if (!c10::GradMode::is_enabled() && (autograd->grad_fn_ || autograd->grad_accumulator_.expired())) return;
  register_hook_once(tensor, plain_gradient);
}

}  // namespace sherd::detail
