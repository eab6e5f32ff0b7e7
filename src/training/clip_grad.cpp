#include "sherd/clip_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/errors.h"
#include "comm/observer.h"
#include "sherd/collectives.h"
#include "training/gradients.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::HeldGradients;

// How norms of parts become the norm of the whole: each is brought to a form that can be reduced, and back.
class Norm {
 public:
  explicit Norm(double order) : order_(order) {}

  double order() const { return order_; }
  ReduceOp op() const { return !std::isinf(order_) ? ReduceOp::sum : order_ > 0 ? ReduceOp::max : ReduceOp::min; }
  // The reducible form of nothing.
  double neutral() const { return order_ == -std::numeric_limits<double>::infinity() ? -order_ : 0; }
  Tensor reducible(const Tensor& norm) const { return is_power() ? norm.pow(order_) : norm; }
  Tensor norm(const Tensor& reducible) const { return is_power() ? reducible.pow(1 / order_) : reducible; }

 private:
  // For 0 the "norm" is a count, which adds up.
  bool is_power() const { return !std::isinf(order_) && order_ != 0 && order_ != 1; }
  double order_;
};

bool is_half(const Tensor& tensor) {
  return tensor.scalar_type() == c10::kHalf || tensor.scalar_type() == c10::kBFloat16;
}

// The norm of every part, a number each on `options`; half precision is worked on in float. Copies and parts without
// elements have none.
std::vector<Tensor> norms_of_parts(const HeldGradients& held, const Norm& norm) {
  std::vector<Tensor> norms(held.locals.size());
  for (const bool half : {false, true}) {
    std::vector<Tensor> parts;
    std::vector<size_t> places;
    for (size_t i = 0; i < held.locals.size(); ++i) {
      const Tensor& local = held.locals[i];
      if (held.is_copy[i] || local.numel() == 0 || is_half(local) != half) continue;
      parts.push_back(local);
      places.push_back(i);
    }
    if (parts.empty()) continue;
    const auto type = half ? std::optional(c10::kFloat) : std::nullopt;
    const std::vector<Tensor> found = at::_foreach_norm(parts, norm.order(), type);
    for (size_t i = 0; i < found.size(); ++i) norms[places[i]] = found[i];
  }
  return norms;
}

// The norms of the tensors of one mesh, whole, the same on all of its ranks.
Tensor norms_of(const HeldGradients& held, const Norm& norm, const at::TensorOptions& options) {
  std::vector<Tensor> norms = norms_of_parts(held, norm);
  if (!held.mesh) {
    for (Tensor& each : norms) each = each.defined() ? each.to(options) : at::zeros({}, options);
    return at::stack(norms);
  }
  for (Tensor& each : norms) {
    each = each.defined() ? norm.reducible(each.to(options)) : at::full({}, norm.neutral(), options);
  }
  const Tensor all = at::stack(norms).to(held.mesh->device());
  if (held.mesh->coordinate()) all_reduce(detail::group_of_all(*held.mesh), all, norm.op()).wait();
  return norm.norm(all).to(options);
}

at::TensorOptions options_for(const std::vector<HeldGradients>& held) {
  const bool wide = std::any_of(held.begin(), held.end(), [](const HeldGradients& h) {
    return std::any_of(h.locals.begin(), h.locals.end(),
                       [](const Tensor& local) { return c10::toRealValueType(local.scalar_type()) == c10::kDouble; });
  });
  const c10::Device device = held.front().mesh ? held.front().mesh->device() : held.front().locals.front().device();
  return at::TensorOptions(wide ? c10::kDouble : c10::kFloat).device(device);
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options) {
  const c10::NoGradGuard no_grad;
  const Norm norm(options.norm_type);
  const detail::CauseScope cause("clip_grad_norm_");
  const std::vector<Tensor> gradients = detail::gradients_of(parameters);
  const std::vector<HeldGradients> held = detail::by_mesh(gradients);
  Tensor total = at::zeros({}, at::TensorOptions(c10::kFloat));
  if (!held.empty()) {
    const at::TensorOptions where = options_for(held);
    std::vector<Tensor> norms;
    for (const HeldGradients& each : held) norms.push_back(norms_of(each, norm, where));
    total = at::linalg_vector_norm(at::cat(norms), norm.order());
  }
  for (const Group& group : options.across) {
    const Tensor sum = norm.reducible(total).to(c10::kDouble);
    all_reduce(group, sum, norm.op()).wait();
    total = norm.norm(sum).to(total.scalar_type());
  }
  if (options.error_if_nonfinite && !at::isfinite(total).item<bool>()) {
    detail::throw_error(
        ErrorText("clip_grad_norm_", "the norm of the gradients is not finite")
            .fact("norm", fmt::format("{}", total.item<double>()))
            .help("leave error_if_nonfinite away to clip them all the same; sherd::GradScaler skips the "
                  "steps of half precision that overflow"));
  }
  const Tensor scale = (max_norm / (total + 1e-6)).clamp_max(1);
  for (Tensor gradient : gradients) gradient.mul_(scale.to(gradient.device()));
  return total;
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  return clip_grad_norm_(parameters, max_norm,
                         ClipOptions{.norm_type = norm_type, .error_if_nonfinite = error_if_nonfinite});
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const c10::NoGradGuard no_grad;
  for (Tensor gradient : detail::gradients_of(parameters)) gradient.clamp_(-clip_value, clip_value);
}

}  // namespace sherd
