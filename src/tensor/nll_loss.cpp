#include "tensor/nll_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <variant>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "tensor/edges.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The arguments that forward and backward share. Dim 1 of the log probabilities, or the only one, holds the classes.
struct Call {
  Tensor self;
  Tensor target;
  std::optional<Tensor> weight;
  int64_t reduction = at::Reduction::Mean;
  int64_t ignore_index = 0;
  int64_t class_dim = 1;
};

Call read(const c10::OperatorHandle& op, const Stack& stack, size_t self) {
  Call call{.self = argument(stack, op, self).toTensor(),
            .target = argument(stack, op, self + 1).toTensor(),
            .weight = optional_tensor(argument(stack, op, self + 2)),
            .reduction = argument(stack, op, self + 3).toInt(),
            .ignore_index = argument(stack, op, self + 4).toInt()};
  call.class_dim = call.self.dim() == 1 ? 0 : 1;
  return call;
}

// What this rank knows of the targets, in the form of its part of them.
struct Picks {
  DeviceMesh mesh;
  Placements sample_placements;  // of the target, and of what there is one of per sample; classes are left out
  Placements cut_placements;     // the same, a sum along the axes that cut the classes
  Tensor part;                   // of the log probabilities
  Tensor rows;                   // of the part, one per sample; 0 where the target is not among them
  Tensor absent;                 // whether it is not
  Tensor ignored;                // whether the sample does not count
  Tensor weights;                // of this rank's samples and classes, 0 where absent; one where none are given
};

void check_targets(const Tensor& target, const Tensor& ignored, int64_t classes) {
  const Tensor right = target.ge(0).logical_and(target.lt(classes)).logical_or(ignored).all();
  if (!target.is_cpu()) {
    at::_assert_async(right);  // as torch's kernel: nobody waits for the device
    return;
  }
  if (target.numel() == 0 || right.item<bool>()) return;
  const Tensor wrong = target.lt(0).logical_or(target.ge(classes)).logical_and(ignored.logical_not());
  throw_value_error(ErrorText("nll_loss", "a target is no class")
                        .fact("target", std::to_string(target.masked_select(wrong)[0].item<int64_t>()))
                        .fact("classes", std::to_string(classes))
                        .help("targets in [0, classes), or ignore_index for samples that do not count"));
}

// The placement of the dim that holds the classes, for a vector of them.
Placement along_vector(Placement placement) {
  std::visit(
      [](auto& p) {
        if constexpr (requires { p.dim; }) p.dim = 0;
      },
      placement);
  return placement;
}

// Nothing where the classes are not cut, or torch refuses the call and says why.
std::optional<Picks> pick(const Call& call) {
  const DTensorMeta* meta = meta_of(call.self);
  if (meta == nullptr || call.self.dim() == 0 || call.target.dim() + 1 != call.self.dim()) return std::nullopt;
  if (!is_sharded(*meta, call.class_dim) || !call.self.is_floating_point()) return std::nullopt;
  const c10::ScalarType type = call.target.scalar_type();
  const int64_t classes = call.self.size(call.class_dim);
  if ((type != c10::kLong && type != c10::kByte) || (call.weight && call.weight->sizes() != at::IntArrayRef(classes))) {
    return std::nullopt;
  }
  const auto on_other_mesh = [&](const Tensor& tensor) {
    return meta_of(tensor) != nullptr && !(meta_of(tensor)->spec->mesh == meta->spec->mesh);
  };
  if (on_other_mesh(call.target) || (call.weight && on_other_mesh(*call.weight))) return std::nullopt;
  const Tensor self = reduced(call.self);
  const Spec& spec = *meta_of(self)->spec;
  Picks picks{.mesh = spec.mesh,
              .sample_placements = plan::without_dim(spec.placements, call.class_dim, true),
              .cut_placements = {},
              .part = part_of(self),
              .rows = {},
              .absent = {},
              .ignored = {},
              .weights = {}};
  picks.cut_placements = picks.sample_placements;
  Placements class_placements(spec.placements.size(), Replicate());
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (sharded_dim(spec.placements[axis]) != call.class_dim) continue;
    class_placements[axis] = along_vector(spec.placements[axis]);
    picks.cut_placements[axis] = Partial();
  }
  const Tensor target = part_of(placed(call.target, spec.mesh, picks.sample_placements)).to(c10::kLong);
  picks.ignored = target.eq(call.ignore_index);
  check_targets(target, picks.ignored, call.self.size(call.class_dim));
  picks.absent = at::ones_like(target, target.options().dtype(c10::kBool));
  picks.rows = at::zeros_like(target);
  int64_t held = 0;  // classes of this rank: one range of them, or several
  const Dims here = spec.mesh.coordinate().value_or(Dims(spec.placements.size(), 0));
  for (const Box& box : local_boxes({spec.mesh.mesh(), {call.self.size(call.class_dim)}, class_placements}, here)) {
    const int64_t begin = box.offset[0];
    const Tensor foreign = target.lt(begin).logical_or(target.ge(begin + box.size[0]));
    picks.rows = at::where(foreign, picks.rows, target.sub(begin - held));
    picks.absent = picks.absent.logical_and(foreign);
    held += box.size[0];
  }
  picks.absent = picks.absent.logical_or(picks.ignored);
  picks.rows = picks.rows.masked_fill(picks.absent, 0);
  // Every rank takes part in moving the weights, one without classes too.
  const Tensor weight = call.weight ? part_of(placed(*call.weight, spec.mesh, class_placements)) : Tensor();
  if (weight.defined() && held > 0) {
    picks.weights = at::index_select(widened(weight), 0, picks.rows.view(-1)).view(picks.rows.sizes());
  } else {
    picks.weights = at::ones_like(picks.rows, widened(picks.part).options());
  }
  picks.weights = picks.weights.masked_fill(picks.absent, 0);
  return picks;
}

// A number of which every rank that holds samples or classes has its share.
Tensor as_sum(const Picks& picks, const Placements& of, const Tensor& share) {
  Placements placements = of;
  for (Placement& p : placements) {
    if (is_shard(p)) p = Partial();
  }
  return from_parts(picks.mesh, placements, {}, share);
}

// The mean over a sharded batch divides the sums.
bool mean_of_samples(const c10::OperatorHandle& op, Stack& stack, const Call& call) {
  if (call.reduction != at::Reduction::Mean || call.self.dim() < 2) return false;
  Dims samples;
  for (int64_t d = 0; d < call.self.dim(); ++d) {
    if (d != call.class_dim) samples.push_back(d);
  }
  Dims targets;
  for (int64_t d = 0; d < call.target.dim(); ++d) targets.push_back(d);
  if (!any_sharded(call.self, samples) && !any_sharded(call.target, targets)) return false;
  stack[stack.size() - op.schema().arguments().size() + 3] = int64_t{at::Reduction::Sum};
  op.callBoxed(stack);
  const Tensor count = stack.back().toTensor();
  const Tensor sum = stack[stack.size() - 2].toTensor();
  stack[stack.size() - 2] = sum.div(count);
  return true;
}

}  // namespace

// (self, target, weight, reduction, ignore_index) -> loss, total_weight.
bool nll_loss_of_parts(const c10::OperatorHandle& op, Stack& stack) {
  const Call call = read(op, stack, 0);
  const auto picks = pick(call);
  if (!picks) return mean_of_samples(op, stack, call);
  Tensor losses = at::zeros_like(picks->weights);
  if (picks->part.size(call.class_dim) > 0) {
    losses = widened(at::gather(picks->part, call.class_dim, picks->rows.unsqueeze(call.class_dim)))
                 .squeeze(call.class_dim)
                 .mul(picks->weights)
                 .neg()
                 .masked_fill(picks->absent, 0);  // an infinity that is not meant
  }
  const auto type = call.self.scalar_type();
  if (call.reduction == at::Reduction::None) {
    const Tensor none = at::zeros({}, picks->part.options());
    answer(op, stack, from_parts(picks->mesh, picks->cut_placements, call.target.sizes().vec(), losses.to(type)));
    stack.emplace_back(from_parts(picks->mesh, whole_on(picks->mesh), {}, none));
    return true;
  }
  // Without weights every rank can count; with them each has those of its classes.
  Tensor total = call.weight ? as_sum(*picks, picks->cut_placements, picks->weights.sum())
                             : as_sum(*picks, picks->sample_placements,
                                      picks->ignored.logical_not().sum().to(picks->weights.scalar_type()));
  total = reduced(total);
  Tensor loss = as_sum(*picks, picks->cut_placements, losses.sum());
  if (call.reduction == at::Reduction::Mean) loss = loss.div(total);
  answer(op, stack, loss.to(type));
  stack.emplace_back(total.to(type));
  return true;
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight) -> gradient of self.
bool nll_loss_of_parts_backward(const c10::OperatorHandle& op, Stack& stack) {
  const Call call = read(op, stack, 1);
  const auto picks = pick(call);
  if (!picks) return false;
  const Tensor grad_output = argument(stack, op, 0).toTensor();
  const bool each = call.reduction == at::Reduction::None;
  const Placements whole = whole_on(picks->mesh);
  Tensor grad = widened(part_of(placed(grad_output, picks->mesh, each ? picks->sample_placements : whole)));
  if (call.reduction == at::Reduction::Mean) {
    grad = grad / widened(part_of(placed(argument(stack, op, 6).toTensor(), picks->mesh, whole)));
  }
  Tensor part = at::zeros(picks->part.sizes(), picks->part.options());
  if (part.size(call.class_dim) > 0) {
    const Tensor values = picks->weights.mul(grad).neg().masked_fill(picks->absent, 0).to(part.scalar_type());
    part.scatter_(call.class_dim, picks->rows.unsqueeze(call.class_dim), values.unsqueeze(call.class_dim));
  }
  answer(op, stack,
         from_parts(picks->mesh, grad_placements_for(meta_of(call.self)->spec->placements), call.self.sizes().vec(),
                    part));
  return true;
}

}  // namespace sherd::detail
