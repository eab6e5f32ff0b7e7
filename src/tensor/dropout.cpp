// Dropout on DTensors. The mask is a function of the draw and of an element's place, so that none is kept: backward
// makes it again, wherever the gradient lies.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "random/fill.h"
#include "random/generator.h"
#include "tensor/attention_scope.h"
#include "tensor/dispatch.h"
#include "tensor/draw.h"
#include "tensor/draw_by_torch.h"
#include "tensor/held_boxes.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using torch::jit::Stack;

void check_probability(const char* operation, double p) {
  if (p >= 0 && p <= 1) return;
  throw_value_error(
      ErrorText(operation, "the probability is outside [0, 1]").fact("p", fmt::format("{}", p)).help("0 <= p <= 1"));
}

// Zeroing and scaling go through sums and averages of parts; what reduces otherwise is reduced first.
Tensor droppable(const Tensor& tensor) {
  const SpecPtr& spec = meta_of(tensor)->spec;
  if (spec->boxes) return ordinary(tensor, spec->placements, {.operation = "dropout"});
  for (const Placement& p : spec->placements) {
    const auto* partial = std::get_if<Partial>(&p);
    if (partial != nullptr && partial->op != ReduceOp::sum && partial->op != ReduceOp::avg) return reduced(tensor);
  }
  return tensor;
}

struct Dropped {
  Tensor kept;
  Tensor mask;  // where it was asked for
};

// Below autograd.
Dropped dropped(const Tensor& input, const Dropout& dropout, bool with_mask) {
  const DTensorMeta* plain = meta_of(input);
  const auto mask_for = [&](const Tensor& local) {
    return with_mask ? at::empty(local.sizes(), local.options().dtype(at::kBool)) : Tensor();
  };
  if (plain == nullptr) {
    const Tensor mask = mask_for(input);
    return {drop(input, whole_positions(input.numel()), dropout, mask), mask};
  }
  const Tensor tensor = droppable(input);
  const Spec& spec = *meta_of(tensor)->spec;
  const Placements whole = plan::without_partials(spec.placements);
  const Tensor local = part_of(tensor);
  Tensor kept = local;
  Tensor mask = mask_for(local);
  if (spec.mesh.coordinate()) {
    // Memory of its own, without elements too: ranks would count the writes to it differently, and copied views are
    // fetched anew by those alone that saw one.
    const bool draws = local.numel() > 0 && !local.is_meta();
    const Layout layout{spec.mesh.mesh(), spec.sizes, whole};
    kept = draws ? drop(local, positions_of(layout, *spec.mesh.coordinate()), dropout, mask) : at::empty_like(local);
  }
  Dropped result{from_parts(spec.mesh, spec.placements, spec.sizes, kept), {}};
  if (with_mask) result.mask = from_parts(spec.mesh, whole, spec.sizes, mask);
  return result;
}

struct DropAgain : Function<DropAgain> {
  static Tensor forward(AutogradContext* context, const Tensor& input, double p, int64_t seed, int64_t offset) {
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    context->saved_data["offset"] = offset;
    if (meta_of(input) != nullptr) hook_leaf(input);  // now that there is a graph
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return dropped(input, {p, static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)}, false).kept;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    Tensor grad = grads[0];
    if (grad.defined()) {
      grad = DropAgain::apply(grad, context->saved_data["p"].toDouble(), context->saved_data["seed"].toInt(),
                              context->saved_data["offset"].toInt());
    }
    return {grad, Tensor(), Tensor(), Tensor()};
  }
};

// dropout(input, p, train).
Tensor dropout(const Tensor& input, double p, bool train) {
  check_probability("dropout", p);
  if (!train || p == 0 || input.numel() == 0) return input;
  const DTensorMeta* meta = meta_of(input);
  PhiloxGenerator& generator = generator_for("dropout", std::nullopt, meta != nullptr ? &meta->spec->mesh : nullptr);
  if (meta == nullptr || generator.mode() != RngMode::by_position) {
    return at::native::dropout(input, p, train);
  }
  hook_leaf(input);
  const auto seed = static_cast<int64_t>(generator.current_seed());
  return DropAgain::apply(input, p, seed, static_cast<int64_t>(generator.next_draw()));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                 double p, bool causal, std::optional<double> scale, bool grouped) {
  check_probability("scaled_dot_product_attention", p);
  const AttentionCall call{query, key, value, mask, p, causal, scale, grouped};
  if (auto answered = AttentionScope::answer(call)) return *answered;
  return ordinary_attention(call);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, library) {
  library.impl("dropout", dropout);
  library.impl("scaled_dot_product_attention", attention);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse2, library) {
  library.impl("dropout", dropout);
  library.impl("scaled_dot_product_attention", attention);
}

}  // namespace

// The fused kernels drop by the numbers of their own shard; written out, attention drops by place.
Tensor ordinary_attention(const AttentionCall& call) {
  const auto& [query, key, value, mask, p, causal, scale, grouped] = call;
  if (p > 0) {
    return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, mask, p, causal, {}, scale, grouped));
  }
  return at::native::scaled_dot_product_attention(query, key, value, mask, p, causal, scale, grouped);
}

// native_dropout(input, p, train) -> output, mask, and _fused_dropout(self, p, generator), whose p is of keeping.
bool draw_dropout(const c10::OperatorHandle& op, Stack& stack) {
  const bool fused = op.operator_name().name == "aten::_fused_dropout";
  const Tensor input = argument(stack, op, 0).toTensor();
  const double given = argument(stack, op, 1).toDouble();
  check_probability(fused ? "_fused_dropout" : "native_dropout", given);
  const c10::IValue train = fused ? c10::IValue(true) : argument(stack, op, 2);
  if (!train.isNone() && !train.toBool()) {
    answer(op, stack, input.clone());
    stack.emplace_back(at::ones_like(input, input.options().dtype(at::kBool)));
    return true;
  }
  PhiloxGenerator& generator =
      generator_for("dropout", generator_given(op, stack), mesh_of_call(arguments_of(stack, op)));
  if (generator.mode() != RngMode::by_position) {
    draw_by_torch(op, stack, generator);
    return true;
  }
  const uint64_t seed = generator.current_seed();
  const Dropped result = dropped(input, {fused ? 1 - given : given, seed, generator.next_draw()}, true);
  answer(op, stack, result.kept);
  stack.emplace_back(fused ? result.mask.to(at::kByte) : result.mask);
  return true;
}

}  // namespace sherd::detail
