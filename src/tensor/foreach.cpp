// Operators on lists of tensors: what they do to the i-th tensors of their lists, they do to each i alone.

#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>

#include "comm/errors.h"
#include "plan/redistribute.h"
#include "tensor/dispatch.h"
#include "tensor/infer.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Where the i-th tensors of all lists are brought: the first list's placements, with Partials reduced.
struct Target {
  SpecPtr spec;  // null where none of them is distributed
  Placements placements;
  bool lies_alike = false;  // all lie in memory in one way, and so will what is made of them
};

using Lists = std::vector<std::vector<Tensor>>;

Target target_of(const Lists& lists, size_t k) {
  const Tensor* first = nullptr;
  const DTensorMeta* meta = nullptr;  // of the first that is distributed
  bool alike = true, lies_alike = true;
  for (const std::vector<Tensor>& list : lists) {
    if (k >= list.size()) continue;
    if (first == nullptr) first = &list[k];
    if (meta == nullptr) meta = meta_of(list[k]);
    const bool is_number = list[k].dim() == 0;
    alike &= is_number || list[k].sizes() == first->sizes();
    lies_alike &= is_number ? first->is_contiguous() : list[k].strides() == first->strides();
  }
  Target target;
  if (meta == nullptr) return target;
  // What is broadcast is whole on every rank, and so is what a plain tensor is written with.
  const bool whole = !alike || meta_of(*first) == nullptr;
  target.placements = meta->spec->placements;
  for (Placement& p : target.placements) {
    if (whole || is_partial(p)) p = Replicate();
  }
  target.lies_alike = lies_alike && alike && meta == meta_of(*first) && first->is_non_overlapping_and_dense();
  const Dims& sizes = meta->spec->sizes;
  target.spec = intern_spec(meta->spec->mesh, target.placements, sizes,
                            first->is_contiguous() ? contiguous_strides(sizes) : meta->spec->strides);
  return target;
}

// Whether a move of a tensor of this kind makes ranks talk.
bool costs_bytes(const DeviceMesh& mesh, const Tensor& tensor, const Placements& from, const Placements& to) {
  if (from == to) return false;
  const auto size = static_cast<int64_t>(tensor.element_size());
  return plan::plan_redistribution(mesh.mesh(), tensor.sizes().vec(), size, from, to).bytes > 0;
}

// This rank's part of a DTensor where it has these placements.
Tensor moved_to(const OpInfo& info, const Tensor& tensor, const Placements& to) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& spec = *meta->spec;
  if (redistribution_mode() != ExplicitRedistribution::Mode::allow &&
      costs_bytes(spec.mesh, tensor, spec.placements, to)) {
    check_explicit([&] {
      return would_move(info.short_name(),
                        {{"operand", describe(spec, tensor.scalar_type())}, {"needed as", to_string(to)}},
                        "sherd::redistribute(operand, " + to_code(to) + ")");
    });
  }
  return move(current_local(*meta), spec.mesh, spec.sizes, spec.placements, to);
}

Tensor local_at(const OpInfo& info, const Tensor& tensor, const Target& target) {
  const DTensorMeta* meta = meta_of(tensor);
  settle(tensor);
  if (!target.spec) {  // a tensor beside the lists
    return meta == nullptr ? tensor : moved_to(info, tensor, Placements(meta->spec->placements.size(), Replicate()));
  }
  const bool scalar = tensor.dim() == 0;
  const Placements whole(target.placements.size(), Replicate());
  const Placements& to = scalar ? whole : target.placements;
  if (meta == nullptr) {
    // A rank outside the mesh has a part of nothing.
    if (!target.spec->mesh.coordinate() && !scalar) return at::empty({0}, tensor.options());
    return move(tensor, target.spec->mesh, tensor.sizes().vec(), whole, to);
  }
  if (!(meta->spec->mesh == target.spec->mesh)) {
    return local_at(info, brought_to_mesh(info.short_name().c_str(), tensor, target.spec->mesh), target);
  }
  return moved_to(info, tensor, to);
}

// Whether a plain tensor is worked on in parts: with DTensors that are cut.
bool works_in_parts(const Tensor& plain, const Target& target) {
  return target.spec && plain.dim() > 0 &&
         !std::all_of(target.placements.begin(), target.placements.end(), is_replicate);
}

// Before anything is computed: what each rank writes of a plain tensor goes to all of them.
void check_written_plain(const OpInfo& info, const std::vector<Tensor>& list, const std::vector<Target>& targets) {
  for (size_t k = 0; k < list.size() && k < targets.size(); ++k) {
    if (meta_of(list[k]) != nullptr || !works_in_parts(list[k], targets[k])) continue;
    const Placements whole(targets[k].placements.size(), Replicate());
    if (redistribution_mode() == ExplicitRedistribution::Mode::allow ||
        !costs_bytes(targets[k].spec->mesh, list[k], targets[k].placements, whole)) {
      continue;
    }
    check_explicit([&] {
      return would_move(info.short_name(),
                        {{"operand", to_string(list[k].sizes().vec()) + ", plain and written"},
                         {"beside", to_string(targets[k].placements)}},
                        "sherd::distribute_tensor(operand, mesh, " + to_code(targets[k].placements) + ")");
    });
  }
}

// A plain tensor is whole on every rank: it takes what all of them wrote. A rank outside the mesh wrote nothing.
void write_plain(const Tensor& plain, const Tensor& part, const Target& target) {
  if (target.spec && !target.spec->mesh.coordinate()) return;
  if (!works_in_parts(plain, target)) {
    if (!part.is_alias_of(plain)) plain.copy_(part);
    return;
  }
  const Placements whole(target.placements.size(), Replicate());
  plain.copy_(move(part, target.spec->mesh, plain.sizes().vec(), target.placements, whole));
}

using Results = std::optional<std::vector<std::vector<Geometry>>>;

// The i-th result of the k-th tensors. `known`: as it follows from the call alone.
Tensor wrapped(const Target& target, const Results& known, size_t i, const Tensor& local) {
  if (target.lies_alike) return wrap(target.spec, local);
  const DeviceMesh& mesh = target.spec->mesh;
  if (known && i < known->size() && (*known)[i].size() == 1) {
    const Geometry& geometry = (*known)[i].front();
    return wrap(intern_spec(mesh, target.placements, geometry.sizes, geometry.strides), local);
  }
  if (!mesh.coordinate()) return wrap(target.spec, local);
  // What is whole on every rank may have been broadcast.
  const bool whole = std::all_of(target.placements.begin(), target.placements.end(), is_replicate);
  const Dims sizes = whole ? local.sizes().vec() : target.spec->sizes;
  return wrap(spec_for(mesh, target.placements, sizes, local), local);
}

bool is_copied_view(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr && meta->origin != nullptr;
}

// Whether a tensor is worked on in a copy, which has other placements.
bool is_moved(const Tensor& tensor, const Target& target) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) return works_in_parts(tensor, target);
  if (!(meta->spec->mesh == target.spec->mesh)) return true;
  const Placements whole(target.placements.size(), Replicate());
  return meta->spec->placements != (tensor.dim() == 0 ? whole : target.placements);
}

// Whether the k-th tensor of a list shares memory with the m-th of one, m not k. Every rank comes to the same answer:
// it is a matter of what the program made of what.
bool share_memory(const Lists& lists) {
  std::unordered_map<const c10::StorageImpl*, size_t> owners;
  for (const std::vector<Tensor>& list : lists) {
    for (size_t k = 0; k < list.size(); ++k) {
      DTensorMeta* meta = meta_of(list[k]);
      const Tensor& local = meta != nullptr ? current_local(*meta) : list[k];
      if (!local.has_storage()) continue;
      const auto [owner, fresh] = owners.emplace(local.storage().unsafeGetStorageImpl(), k);
      if (!fresh && owner->second != k) return true;
    }
  }
  return false;
}

// Whether what the call writes to one tensor may be another one's: views that were copied share no memory, nor do
// tensors that are moved, so that those who come later would not see it.
bool writes_beside_copies(const OpInfo& info, const Lists& lists, const std::vector<Target>& targets) {
  if (!info.return_of.empty()) return false;
  bool any_moved = false;
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::vector<Tensor>& list = lists[i];
    if (!info.arguments[i].written || list.size() < 2) continue;
    if (std::any_of(list.begin(), list.end(), is_copied_view)) return true;
    for (size_t k = 0; k < list.size() && k < targets.size(); ++k) {
      any_moved |= targets[k].spec && is_moved(list[k], targets[k]);
    }
  }
  return any_moved && share_memory(lists);
}

// What a list, or a tensor of as many numbers, has for the k-th.
c10::IValue kth(const c10::IValue& value, bool is_scalars, size_t k, size_t count) {
  if (value.isTensorList()) {
    const c10::List<Tensor> list = value.toTensorList();
    return list.size() == count ? c10::IValue(c10::List<Tensor>({list.get(k)})) : value;
  }
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    if (list.size() != count) return value;
    c10::impl::GenericList one(list.elementType());
    one.push_back(list.get(k));
    return one;
  }
  return is_scalars ? c10::IValue(value.toTensor().narrow(0, static_cast<int64_t>(k), 1)) : value;
}

// The call on the k-th of `count` tensors alone.
Stack kth_call(const c10::OperatorHandle& op, const Stack& all, size_t k, size_t count) {
  const auto& arguments = op.schema().arguments();
  Stack one;
  for (size_t i = 0; i < all.size(); ++i) {
    one.push_back(kth(all[i], arguments[i].name() == "scalars" && all[i].isTensor(), k, count));
  }
  return one;
}

// As on one device: the i-th after those before it.
void execute_one_by_one(const c10::OperatorHandle& op, Stack& stack, size_t base, size_t count) {
  const Stack all(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  for (size_t k = 0; k < count; ++k) {
    Stack one = kth_call(op, all, k, count);
    op.callBoxed(one);
  }
  stack.resize(base);
}

// An out= tensor takes what the operator returns without it.
void fill(const Tensor& out, const Tensor& value) {
  if (out.sizes() == value.sizes() || meta_of(out) == nullptr) {
    if (out.sizes() != value.sizes()) out.resize_(value.sizes());
    out.copy_(value);
    return;
  }
  const Tensor anew = value.to(out.scalar_type());
  out.unsafeGetTensorImpl()->shallow_copy_from(anew.getIntrusivePtr());
}

}  // namespace

void execute_into_lists(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  const auto functional = c10::Dispatcher::singleton().findSchema({info.name, info.base_overload});
  const size_t base = stack.size() - info.arguments.size();
  if (!functional || !info.return_of.empty() || info.base_overload == op.operator_name().overload_name) {
    throw c10::NotImplementedError(ErrorText(info.short_name(), "no operator makes what these out= lists hold")
                                       .fact("operator", toString(op.operator_name()))
                                       .help("the same operator without out=")
                                       .str());
  }
  Stack call;
  Lists outs;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (!info.arguments[i].out) {
      call.push_back(stack[base + i]);
    } else {
      outs.push_back(stack[base + i].isTensorList() ? stack[base + i].toTensorVector()
                                                    : std::vector<Tensor>{stack[base + i].toTensor()});
    }
  }
  functional->callBoxed(call);
  for (size_t i = 0; i < outs.size(); ++i) {
    const c10::IValue& made = call.at(i);
    const std::vector<Tensor> values = made.isTensorList() ? made.toTensorVector() : std::vector{made.toTensor()};
    if (values.size() != outs[i].size()) {
      throw_value_error(ErrorText(info.short_name(), "out= has another number of tensors than there are results")
                            .fact("out", std::to_string(outs[i].size()))
                            .fact("results", std::to_string(values.size()))
                            .help("one tensor in out= for each result"));
    }
    for (size_t k = 0; k < values.size(); ++k) fill(outs[i][k], values[k]);
  }
  stack.resize(base);
}

void execute_foreach(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  Lists originals(info.arguments.size());
  size_t count = 0;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind != ArgumentKind::tensor_list || !value.isTensorList()) continue;
    originals[i] = value.toTensorVector();
    if (count == 0) count = originals[i].size();
  }
  std::vector<Target> targets;
  for (size_t k = 0; k < count; ++k) targets.push_back(target_of(originals, k));
  if (writes_beside_copies(info, originals, targets)) return execute_one_by_one(op, stack, base, count);
  std::vector<Results> known(count);
  for (size_t k = 0; k < count && !info.return_of.empty(); ++k) {
    if (!targets[k].spec || targets[k].lies_alike) continue;
    const Stack all(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
    known[k] = infer_results(op, info, kth_call(op, all, k, count));
  }
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].written) check_written_plain(info, originals[i], targets);
  }
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isTensorList()) {
      c10::List<Tensor> locals;
      for (size_t k = 0; k < originals[i].size(); ++k) {
        locals.push_back(local_at(info, originals[i][k], k < targets.size() ? targets[k] : Target()));
      }
      value = std::move(locals);
    } else if (value.isTensor() && value.toTensor().defined()) {
      value = local_at(info, value.toTensor(), Target());
    }
  }
  std::vector<std::vector<Tensor>> moved(info.arguments.size());
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].written && stack[base + i].isTensorList()) moved[i] = stack[base + i].toTensorVector();
  }
  op.callBoxed(stack);
  std::vector<DTensorMeta*> written;
  for (size_t i = 0; i < moved.size(); ++i) {
    for (size_t k = 0; k < moved[i].size(); ++k) {
      DTensorMeta* meta = meta_of(originals[i][k]);
      if (meta == nullptr) {
        write_plain(originals[i][k], moved[i][k], k < targets.size() ? targets[k] : Target());
        continue;
      }
      if (!moved[i][k].is_same(meta->local)) {
        meta->local.copy_(
            move(moved[i][k], meta->spec->mesh, meta->spec->sizes, targets[k].placements, meta->spec->placements));
      }
      written.push_back(meta);
    }
  }
  wrote_locals(written);
  const size_t results = info.return_of.size();
  for (size_t i = 0; i < results; ++i) {
    c10::IValue& value = stack[stack.size() - results + i];
    if (!value.isTensorList()) continue;
    c10::List<Tensor> list;
    const std::vector<Tensor> locals = value.toTensorVector();
    for (size_t k = 0; k < locals.size(); ++k) {
      list.push_back(k < targets.size() && targets[k].spec ? wrapped(targets[k], known[k], i, locals[k]) : locals[k]);
    }
    value = std::move(list);
  }
}

}  // namespace sherd::detail
