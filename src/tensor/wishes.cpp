#include "tensor/wishes.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rms_norm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>

#include "comm/observer.h"
#include "sherd/dtensor.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<at::Tensor>;
using Below = c10::impl::ExcludeDispatchKeyGuard;

// The key set of a tensor is its own, but for classes derived from it.
struct Keys : c10::TensorImpl {
  static void set(c10::TensorImpl* impl, bool on) {
    c10::DispatchKeySet& keys = impl->*&Keys::key_set_;
    keys = on ? keys.add(kWishKey) : keys.remove(kWishKey);
  }
};

struct Found {
  const Wishes* wishes = nullptr;
  const Wish* wish = nullptr;
};

Found find(const Tensor& weight, std::optional<Wish> Wishes::*kind, bool transposed = false) {
  const DTensorMeta* meta = meta_of(weight);
  if (meta == nullptr || !meta->wishes || meta->is_transposed != transposed) return {};
  const std::optional<Wish>& wish = (*meta->wishes).*kind;
  return wish ? Found{meta->wishes.get(), &*wish} : Found{};
}

Found find(const OptionalTensor& weight, std::optional<Wish> Wishes::*kind) {
  return weight ? find(*weight, kind) : Found{};
}

// A plain tensor becomes a DTensor, so that its gradient is reduced where it is partial. Ids have no gradient.
Tensor distributed(const Tensor& plain, const Found& found, int64_t whole_last) {
  const Placement held = found.wish->plain.value_or(Replicate());
  if (is_replicate(held) && !plain.is_floating_point() && !plain.is_complex()) return plain;
  FromLocalOptions options;
  const int64_t last = plain.dim() - 1;
  const int64_t cut = sharded_dim(held);
  if (whole_last >= 0 && (cut == last || cut == -1) && is_shard(held)) {  // the size is known without asking the others
    Dims shape = plain.sizes().vec();
    shape.back() = whole_last;
    options.shape = shape;
  }
  return from_local(plain, found.wishes->mesh, {held}, options);
}

// `whole_last`: the size of the input's last dim, where the weight tells it.
template <class Call>
Tensor as_wished(const Found& found, const Tensor& input, const Call& call, int64_t whole_last = -1) {
  const Below below(kWishKey);
  if (found.wish == nullptr) return call(input);
  const DeviceMesh& own = found.wishes->mesh;
  Tensor given = input;
  if (given.defined() && !has_meta(given.unsafeGetTensorImpl())) given = distributed(given, found, whole_last);
  if (found.wish->input && is_dtensor(given)) given = bring(found.wishes->who, given, own, *found.wish->input);
  const Tensor result = call(given);
  return found.wish->output ? bring(found.wishes->who, result, own, *found.wish->output) : result;
}

Tensor linear(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return as_wished(
      find(weight, &Wishes::product), input, [&](const Tensor& x) { return at::linear(x, weight, bias); },
      weight.size(-1));
}

// torch::nn::functional::linear of two dims: addmm(bias, input, weight.t()).
Tensor addmm(const Tensor& bias, const Tensor& input, const Tensor& weight, const at::Scalar& beta,
             const at::Scalar& alpha) {
  return as_wished(
      find(weight, &Wishes::product, /*transposed=*/true), input,
      [&](const Tensor& x) { return at::addmm(bias, x, weight, beta, alpha); }, weight.size(0));
}

// And of more dims: input.matmul(weight.t()), to which the bias is added in place.
Tensor matmul(const Tensor& input, const Tensor& weight) {
  return as_wished(
      find(weight, &Wishes::product, /*transposed=*/true), input,
      [&](const Tensor& x) { return at::matmul(x, weight); }, weight.size(0));
}

Tensor embedding(const Tensor& weight, const Tensor& ids, c10::SymInt padding, bool scale, bool sparse) {
  return as_wished(find(weight, &Wishes::lookup), ids,
                   [&](const Tensor& x) { return at::embedding_symint(weight, x, padding, scale, sparse); });
}

Tensor layer_norm(const Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps, bool cudnn) {
  return as_wished(find(weight, &Wishes::norm), input,
                   [&](const Tensor& x) { return at::layer_norm_symint(x, shape, weight, bias, eps, cudnn); });
}

Tensor rms_norm(const Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                std::optional<double> eps) {
  return as_wished(find(weight, &Wishes::norm), input,
                   [&](const Tensor& x) { return at::rms_norm_symint(x, shape, weight, eps); });
}

Tensor group_norm(const Tensor& input, int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps, bool cudnn) {
  return as_wished(find(weight, &Wishes::norm), input,
                   [&](const Tensor& x) { return at::group_norm(x, groups, weight, bias, eps, cudnn); });
}

template <auto Norm>
Tensor channel_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                    const OptionalTensor& mean, const OptionalTensor& variance, bool training, double momentum,
                    double eps, bool cudnn) {
  return as_wished(find(weight, &Wishes::norm), input, [&](const Tensor& x) {
    return Norm(x, weight, bias, mean, variance, training, momentum, eps, cudnn);
  });
}

Tensor transposed(const Tensor& tensor) {
  const Below below(kWishKey);
  Tensor result = tensor.t();
  const DTensorMeta* meta = meta_of(tensor);
  if (meta != nullptr && meta->wishes && tensor.dim() == 2) {
    set_wishes(result, meta->wishes);
    meta_of(result)->is_transposed = !meta->is_transposed;
  }
  return result;
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  library.impl("t", transposed);
  library.impl("linear", linear);
  library.impl("addmm", addmm);
  library.impl("matmul", matmul);
  library.impl("embedding", embedding);
  library.impl("layer_norm", layer_norm);
  library.impl("rms_norm", rms_norm);
  library.impl("group_norm", group_norm);
  library.impl("batch_norm", channel_norm<at::batch_norm>);
  library.impl("instance_norm", channel_norm<at::instance_norm>);
}

}  // namespace

void set_wishes(const Tensor& tensor, WishesPtr wishes) {
  DTensorMeta& meta = require_dtensor("set_wishes", tensor);
  Keys::set(tensor.unsafeGetTensorImpl(), wishes != nullptr);
  meta.wishes = std::move(wishes);
  meta.is_transposed = false;
}

WishesPtr wishes_of(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  return meta != nullptr ? meta->wishes : nullptr;
}

std::optional<size_t> axis_in(const DeviceMesh& mesh, const DeviceMesh& own) {
  if (mesh == own) return 0;
  const std::vector<MeshAxis>& axes = mesh.mesh().axes();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!(axes[i] == own.mesh().axes()[0])) continue;
    if (!mesh.coordinate()) return i;  // seen from outside, the name is all there is
    const auto axis = static_cast<int64_t>(i);
    if (mesh.mesh().slice({&axis, 1}, mesh.world().rank()).ranks() == own.mesh().ranks()) return i;
  }
  return std::nullopt;
}

Tensor bring(const std::string& who, const Tensor& tensor, const DeviceMesh& own, const Placement& to) {
  const Spec& spec = *meta_of(tensor)->spec;
  const std::optional<size_t> axis = axis_in(spec.mesh, own);
  if (!axis) return tensor;
  Placement there = to;
  if (auto* shard = std::get_if<Shard>(&there); shard != nullptr && shard->dim < 0) shard->dim += tensor.dim();
  if (!spec.boxes && spec.placements[*axis] == there) return tensor;
  const int64_t cut = sharded_dim(there);
  if (is_partial(there) || (is_shard(there) && (cut < 0 || cut >= tensor.dim()))) {
    throw_value_error(ErrorText("parallelize_module", "the tensor cannot have this layout")
                          .fact("asked by", who)
                          .fact("layout", to_string(to))
                          .fact("tensor", to_string(tensor))
                          .help("Replicate(), or Shard of one of its dims: Shard(-1) is the last"));
  }
  const CauseScope cause("tensor parallel", [&](Cause& c) { c.who = who; });
  Placements target = spec.placements;
  target[*axis] = there;
  return redistribute_edge(tensor, checked("parallelize_module", spec.mesh, spec.sizes, std::move(target)));
}

}  // namespace sherd::detail
