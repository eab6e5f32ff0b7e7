// Random operators whose parameters are tensors.

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/any.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "random/counts.h"
#include "random/fill.h"
#include "random/generator.h"
#include "tensor/draw.h"
#include "tensor/draw_by_torch.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// One answer for all ranks.
bool holds_anywhere(const Tensor& condition) { return condition.numel() > 0 && condition.any().item<bool>(); }

void refuse_values(const std::string& operation, const char* problem, const char* help) {
  throw_value_error(ErrorText(operation, problem).help(help));
}

void check_probabilities(const std::string& operation, const Tensor& p) {
  if (holds_anywhere(at::logical_or(p<0, p> 1))) {
    refuse_values(operation, "a probability is outside [0, 1]", "0 <= p <= 1");
  }
}

// The element's own number for each of the broadcast parameters, as a tensor that lies as they do.
Tensor drawn_counts(CountKind kind, const Tensor& a, const Tensor& b, PhiloxGenerator& generator,
                    c10::ScalarType dtype) {
  const uint64_t seed = generator.current_seed();
  const uint64_t offset = generator.next_draw();
  const Tensor like = reduced(b.defined() ? at::add(a, b) : a);
  const DTensorMeta* meta = meta_of(like);
  if (meta == nullptr) {
    const auto ready = [&](const Tensor& t) { return t.expand(like.sizes()).to(at::kDouble).contiguous(); };
    const Tensor counts =
        draw_counts(kind, ready(a), b.defined() ? ready(b) : b, whole_positions(like.numel()), seed, offset);
    return counts.to(dtype);
  }
  const Spec& spec = *meta->spec;
  const auto ready = [&](const Tensor& t) {
    return part_of(placed(t.expand(like.sizes()), spec.mesh, spec.placements)).to(at::kDouble).contiguous();
  };
  const Tensor first = ready(a);
  const Tensor second = b.defined() ? ready(b) : b;
  Tensor part = first;
  if (spec.mesh.coordinate()) {
    const Positions positions = positions_of(spec.layout(), *spec.mesh.coordinate());
    part = draw_counts(kind, first, second, positions, seed, offset);
  }
  return from_parts(spec.mesh, spec.placements, spec.sizes, part.to(dtype));
}

}  // namespace

// bernoulli(self), bernoulli.Tensor(self, p), bernoulli_.Tensor(self, p), poisson(self), binomial(count, prob).
bool draw_by_element(const c10::OperatorHandle& op, Stack& stack) {
  const std::string operation = op.operator_name().name.substr(6);
  const Stack given = arguments_of(stack, op);
  const Tensor self = given[0].toTensor();
  PhiloxGenerator& generator = generator_for(operation.c_str(), generator_given(op, stack), mesh_of_call(given));
  const bool takes_p = op.operator_name().overload_name == "Tensor" || operation == "binomial";
  const Tensor p = operation == "poisson" ? Tensor() : takes_p ? given[1].toTensor() : self;
  if (p.defined()) check_probabilities(operation, p);
  const bool counts = operation == "poisson" || operation == "binomial";
  if (counts && holds_anywhere(self < 0)) {
    refuse_values(operation, operation == "poisson" ? "a rate is below 0" : "a count is below 0", "numbers from 0 on");
  }
  if (generator.mode() != RngMode::by_position) {
    draw_by_torch(op, stack, generator);
    return true;
  }
  if (operation == "bernoulli_") {
    self.copy_(drawn_counts(CountKind::bernoulli, p.expand(self.sizes()), {}, generator, self.scalar_type()));
    answer(op, stack, self);
  } else if (operation == "bernoulli") {
    const Tensor shaped = takes_p ? p.expand(self.sizes()) : p;
    answer(op, stack, drawn_counts(CountKind::bernoulli, shaped, {}, generator, self.scalar_type()));
  } else if (operation == "poisson") {
    answer(op, stack, drawn_counts(CountKind::poisson, self, {}, generator, self.scalar_type()));
  } else {
    answer(op, stack, drawn_counts(CountKind::binomial, self, p, generator, self.scalar_type()));
  }
  return true;
}

// normal.Tensor_float(mean, std), normal.float_Tensor, normal.Tensor_Tensor.
bool draw_normal_around(const c10::OperatorHandle& op, Stack& stack) {
  const auto generator = generator_given(op, stack);
  const c10::IValue mean = argument(stack, op, 0);
  const c10::IValue deviation = argument(stack, op, 1);
  const bool negative = deviation.isTensor() ? holds_anywhere(deviation.toTensor() < 0) : deviation.toDouble() < 0;
  if (negative) refuse_values("normal", "a standard deviation is below 0", "std >= 0");
  const Tensor like = !mean.isTensor()        ? deviation.toTensor()
                      : !deviation.isTensor() ? mean.toTensor()
                                              : at::add(mean.toTensor(), deviation.toTensor());
  Tensor numbers = at::empty_like(reduced(like), at::MemoryFormat::Contiguous).normal_(0, 1, generator);
  numbers = deviation.isTensor() ? numbers.mul(deviation.toTensor()) : numbers.mul(deviation.toDouble());
  answer(op, stack, mean.isTensor() ? numbers.add(mean.toTensor()) : numbers.add(mean.toDouble()));
  return true;
}

// multinomial(self, num_samples, replacement, generator).
bool draw_multinomial(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  const int64_t samples = argument(stack, op, 1).toInt();
  const bool replacement = argument(stack, op, 2).toBool();
  const auto given = generator_given(op, stack);
  const DTensorMeta* meta = meta_of(self);
  const auto refuse = [&](const char* problem, const std::string& fact, const char* help) {
    throw_value_error(ErrorText("multinomial", problem).fact("given", fact).help(help));
  };
  if (self.dim() < 1 || self.dim() > 2) {
    refuse("the weights are neither one row nor several", fmt::format("{} dims", self.dim()), "weights.view({-1, n})");
  }
  if (!self.is_floating_point())
    refuse("the weights are no floats", c10::toString(self.scalar_type()), "weights.to(torch::kFloat)");
  const int64_t categories = self.size(-1);
  if (samples <= 0) refuse("no sample is asked for", std::to_string(samples), "num_samples >= 1");
  if (!replacement && samples > categories) {
    refuse("more samples than categories", fmt::format("{} samples of {} categories", samples, categories),
           "replacement = true, or fewer samples");
  }
  if (holds_anywhere(at::logical_or(self < 0, at::isfinite(self).logical_not()))) {
    refuse_values("multinomial", "a weight is negative, infinite or not a number", "weights from 0 on");
  }
  const Tensor weights = reduced(self).to(at::kDouble);
  if (holds_anywhere(at::sum(weights, -1) <= 0))
    refuse_values("multinomial", "a row has no weight above 0", "one weight above 0 in every row");
  PhiloxGenerator& generator = generator_for("multinomial", given, meta != nullptr ? &meta->spec->mesh : nullptr);
  if (generator.mode() != RngMode::by_position) {
    draw_by_torch(op, stack, generator);
    return true;
  }
  if (!replacement) {
    // The category that is reached first, where each takes an exponential time of its weight as rate; and so on.
    Tensor times = at::empty_like(weights, at::MemoryFormat::Contiguous);
    fill_drawn("multinomial", times, {.distribution = Distribution::exponential, .a = 1}, generator);
    answer(op, stack, std::get<1>(at::topk(weights / times, samples, -1)));
    return true;
  }
  const uint64_t seed = generator.current_seed();
  const uint64_t offset = generator.next_draw();
  Dims sizes = self.sizes().vec();
  sizes.back() = samples;
  const auto pick = [&](const Tensor& rows, const Positions& positions) {
    Dims shape = rows.sizes().vec();
    shape.back() = samples;
    const Tensor numbers = at::empty(shape, rows.options());
    fill(numbers, positions, {.distribution = Distribution::uniform, .seed = seed, .offset = offset});
    const Tensor sums = at::cumsum(rows, -1);
    const Tensor totals = sums.narrow(-1, categories - 1, 1);
    // A category of weight 0 has the sum of the one before it: a number at its upper end is of the next.
    return at::searchsorted(sums, numbers * totals, false, true).clamp_max_(categories - 1);
  };
  if (meta == nullptr) {
    answer(op, stack, pick(weights, whole_positions(numel(sizes))));
    return true;
  }
  // Rows stay where they are; a row's weights come together.
  const DeviceMesh& mesh = meta->spec->mesh;
  Placements rows = plan::without_dim(meta_of(weights)->spec->placements, self.dim() - 1, false);
  const Tensor part = part_of(placed(weights, mesh, rows));
  Tensor picked = at::empty({0}, part.options().dtype(at::kLong));
  if (mesh.coordinate()) picked = pick(part, positions_of({mesh.mesh(), sizes, rows}, *mesh.coordinate()));
  answer(op, stack, from_parts(mesh, rows, sizes, picked));
  return true;
}

// rrelu_with_noise(self, noise, lower, upper, training, generator), in place too, and the functional one.
bool draw_rrelu(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor self = argument(stack, op, 0).toTensor();
  Tensor noise = argument(stack, op, 1).toTensor();
  const double lower = argument(stack, op, 2).toScalar().toDouble();
  const double upper = argument(stack, op, 3).toScalar().toDouble();
  const std::string name = op.operator_name().name.substr(6);
  const bool functional = name == "rrelu_with_noise_functional";
  const bool in_place = name == "rrelu_with_noise_";
  Tensor result;
  Tensor slopes = noise;
  if (argument(stack, op, 4).toBool()) {
    PhiloxGenerator& generator =
        generator_for("rrelu", generator_given(op, stack), mesh_of_call(arguments_of(stack, op)));
    if (generator.mode() != RngMode::by_position) {
      draw_by_torch(op, stack, generator);
      return true;
    }
    if (!(lower <= upper)) {
      throw_value_error(ErrorText("rrelu", "lower is above upper")
                            .fact("given", fmt::format("{}, {}", lower, upper))
                            .help("lower <= upper"));
    }
    const Tensor drawn =
        at::empty_like(reduced(self), at::MemoryFormat::Contiguous).uniform_(lower, upper, generator_given(op, stack));
    slopes = at::where(self <= 0, drawn, at::ones_like(drawn));
    if (!functional) noise.copy_(slopes);
    result = self * slopes;
  } else {
    const double slope = (lower + upper) / 2;
    result = at::where(self <= 0, self * slope, self);
  }
  if (in_place) {
    self.copy_(result);
    result = self;
  }
  answer(op, stack, result);
  if (functional) stack.emplace_back(slopes);
  return true;
}

}  // namespace sherd::detail
