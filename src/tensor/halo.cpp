#include "tensor/halo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "plan/windows.h"
#include "tensor/edges.h"
#include "tensor/pieces.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Which argument is called `name`; none where the operator has no such one.
std::optional<size_t> place_of(const c10::OperatorHandle& op, const char* name) {
  const auto place = op.schema().argumentIndexWithName(name);
  return place ? std::optional(static_cast<size_t>(*place)) : std::nullopt;
}

// An int[] argument, empty where there is none.
Dims list_of(const c10::OperatorHandle& op, const Stack& stack, const char* name) {
  const auto place = place_of(op, name);
  return place ? argument(stack, op, *place).toIntVector() : Dims();
}

bool is_transposed(const c10::OperatorHandle& op, const Stack& stack) {
  const auto place = place_of(op, "transposed");
  return place && argument(stack, op, *place).toBool();
}

// What the plan asks of a call; the input is a DTensor. Nothing where torch refuses the call.
std::optional<plan::WindowCall> read(const c10::OperatorHandle& op, const Stack& stack, const Tensor& input) {
  plan::WindowCall call;
  call.input = input.sizes().vec();
  call.input_placements = meta_of(input)->spec->placements;
  const auto ceil = place_of(op, "ceil_mode");
  plan::WindowLists lists{.kernel = list_of(op, stack, "kernel_size"),
                          .stride = list_of(op, stack, "stride"),
                          .padding = list_of(op, stack, "padding"),
                          .dilation = list_of(op, stack, "dilation"),
                          .ceil_mode = ceil && argument(stack, op, *ceil).toBool()};
  size_t dims = op.operator_name().name.find("3d") != std::string::npos ? 3 : 2;
  if (const auto place = place_of(op, "weight")) {
    const Tensor weight = argument(stack, op, *place).toTensor();
    if (weight.dim() != input.dim() || input.dim() < 3) return std::nullopt;
    call.weight = weight.sizes().vec();
    const DTensorMeta* meta = meta_of(weight);
    call.weight_placements = meta != nullptr ? meta->spec->placements : whole_on(meta_of(input)->spec->mesh);
    call.grouped = argument(stack, op, *place_of(op, "groups")).toInt() != 1;
    dims = call.weight->size() - 2;
    lists.kernel.assign(call.weight->begin() + 2, call.weight->end());
  } else if (lists.stride.empty()) {
    lists.stride = lists.kernel;
  }
  auto windows = plan::windows_of(dims, lists);
  if (!windows) return std::nullopt;
  call.windows = std::move(*windows);
  return call;
}

// One sharded dim, as this rank sees it.
struct Halo {
  Pieces input;
  Pieces output;
  WantedRows wanted;
  int64_t skip = 0;  // results of the local operator before this rank's first

  int64_t dim() const { return input.dim(); }
  Rows mine() const { return wanted[input.here()].empty() ? Rows() : wanted[input.here()][0]; }
};

// Everything that a call needs to know before data moves.
struct Plan {
  size_t input_place = 0;  // among the arguments
  plan::WindowCall call;
  plan::WindowPlan rows;
  DeviceMesh mesh;
  std::vector<Halo> halos;
};

// Nothing where the operator is not to be worked on in parts.
std::optional<Plan> plan_for(const c10::OperatorHandle& op, const Stack& stack) {
  const auto weight = place_of(op, "weight");
  const size_t place = *place_of(op, weight ? "input" : "self");
  const Tensor input = argument(stack, op, place).toTensor();
  const DTensorMeta* meta = meta_of(input);
  if (meta == nullptr || is_transposed(op, stack)) return std::nullopt;
  const DeviceMesh& mesh = meta->spec->mesh;
  auto call = read(op, stack, input);
  if (!call) return std::nullopt;
  auto rows = plan::plan_windows(mesh.mesh(), *call);
  if (!rows) return std::nullopt;
  std::vector<Halo> halos;
  for (const plan::HaloRows& halo : rows->halos) {
    const Pieces output(mesh, halo.output);
    const auto window = static_cast<size_t>(halo.input.dim - call->first_spatial());
    halos.push_back({Pieces(mesh, halo.input), output, halo.wanted, halo.skip(output.here(), call->windows[window])});
  }
  return Plan{place, std::move(*call), std::move(*rows), mesh, std::move(halos)};
}

// This rank's rows of the input with those around them.
Tensor with_rows_around(const Plan& plan, const Tensor& input) {
  Tensor part = part_of(placed(input, plan.mesh, plan.rows.input));
  for (const Halo& halo : plan.halos) part = halo.input.exchange(part, halo.wanted);
  return part;
}

// Puts weight and bias on the local call.
void localize_weights(const Plan& plan, const c10::OperatorHandle& op, Stack& local) {
  for (const char* name : {"weight", "bias"}) {
    const auto place = place_of(op, name);
    if (!place || !plan.call.weight.has_value() || !local[*place].isTensor() || !local[*place].toTensor().defined())
      continue;
    local[*place] = part_of(placed(local[*place].toTensor(), plan.mesh, plan.rows.weight));
  }
}

Stack arguments_of(const c10::OperatorHandle& op, const Stack& stack) {
  return Stack(stack.end() - static_cast<int64_t>(op.schema().arguments().size()), stack.end());
}

// The size of this rank's part of the result.
Dims part_sizes(const Plan& plan) {
  const Dims here = plan.mesh.coordinate().value_or(Dims(plan.rows.output.size(), 0));
  return local_shape({plan.mesh.mesh(), plan.rows.output_sizes, plan.rows.output}, here);
}

// Places in a plane of sizes `from`, the first row of dim i being row begin[i] of the plane of sizes `to`: the same
// places, counted there.
Tensor recounted(const Tensor& places, const Dims& from, const Dims& to, const Dims& begin) {
  Tensor rest = places;
  Tensor result = at::zeros_like(places);
  int64_t stride = 1;
  for (size_t i = from.size(); i-- > 0;) {
    result = result + (rest.remainder(std::max<int64_t>(1, from[i])) + begin[i]) * stride;
    rest = rest.div(std::max<int64_t>(1, from[i]), "floor");
    stride *= to[i];
  }
  return result;
}

// The sizes of the plane that a part with its halo is, of the whole plane, and where the one begins in the other.
struct Planes {
  Dims part;
  Dims whole;
  Dims begin;

  Planes(const Plan& plan, const Tensor& input, const Tensor& part_with_halo) {
    for (size_t i = 0; i < plan.call.windows.size(); ++i) {
      const int64_t dim = plan.call.first_spatial() + static_cast<int64_t>(i);
      part.push_back(part_with_halo.size(dim));
      whole.push_back(input.size(dim));
      begin.push_back(0);
      for (const Halo& halo : plan.halos) {
        if (halo.dim() == dim) begin.back() = halo.mine().begin;
      }
    }
  }
};

Tensor cut_to(const Plan& plan, Tensor result) {
  for (const Halo& halo : plan.halos) result = result.narrow(halo.dim(), halo.skip, halo.output.mine().size());
  return result;
}

// A tensor of the local operator's result size that is zero but for this rank's results.
Tensor embedded(const Plan& plan, const Tensor& part, const Dims& sizes) {
  Tensor result = at::zeros(sizes, part.options());
  cut_to(plan, result).copy_(part);
  return result;
}

// The local operator's result sizes for a part with its halo.
Dims local_result_sizes(const Plan& plan, const Tensor& part) {
  Dims sizes = part_sizes(plan);
  for (const Halo& halo : plan.halos) {
    const auto d = static_cast<size_t>(halo.dim());
    const plan::Windows& windows = plan.call.windows[d - static_cast<size_t>(plan.call.first_spatial())];
    sizes[d] = windows.count(part.size(halo.dim()));
  }
  return sizes;
}

// A rank without results has the call checked, as the others have: on zeros that make one window. Where there is no
// result anywhere, the whole tensor has no rows, and there is nothing to refuse.
void call_for_its_checks(const Plan& plan, const c10::OperatorHandle& op, Stack local) {
  if (!plan.mesh.coordinate() || numel(plan.rows.output_sizes) == 0) return;
  const auto zeros = [&](size_t place, const Dims& sizes) {
    local[place] = at::zeros(sizes, local[place].toTensor().options());
  };
  Dims sizes = local[plan.input_place].toTensor().sizes().vec();
  for (int64_t& n : sizes) n = std::max<int64_t>(1, n);
  for (size_t i = 0; i < plan.call.windows.size(); ++i) {
    const plan::Windows& window = plan.call.windows[i];
    int64_t& rows = sizes[static_cast<size_t>(plan.call.first_spatial()) + i];
    rows = std::min(plan.call.input[static_cast<size_t>(plan.call.first_spatial()) + i],
                    std::max<int64_t>(1, window.reach));
  }
  zeros(plan.input_place, sizes);
  for (const char* name : {"weight", "bias"}) {
    const auto place = place_of(op, name);
    if (!plan.call.weight || !place || !local[*place].isTensor() || !local[*place].toTensor().defined()) continue;
    Dims part = local[*place].toTensor().sizes().vec();
    if (!part.empty() && part[0] == 0) part[0] = 1;
    if (part != local[*place].toTensor().sizes()) zeros(*place, part);
  }
  op.callBoxed(local);
}

}  // namespace

bool with_halo(const c10::OperatorHandle& op, Stack& stack) {
  const auto plan = plan_for(op, stack);
  if (!plan) return false;
  const Tensor input = argument(stack, op, plan->input_place).toTensor();
  const Tensor part = with_rows_around(*plan, input);
  Stack local = arguments_of(op, stack);
  local[plan->input_place] = part;
  localize_weights(*plan, op, local);
  const size_t count = op.schema().returns().size();
  const Dims own = part_sizes(*plan);
  if (numel(own) == 0) {  // operators refuse tensors without rows
    call_for_its_checks(*plan, op, local);
    local.clear();
    local.emplace_back(at::zeros(own, part.options()));
    if (count > 1) local.emplace_back(at::zeros(own, part.options().dtype(c10::kLong)));
  } else {
    op.callBoxed(local);
    for (c10::IValue& value : local) value = cut_to(*plan, value.toTensor());
    if (count > 1) {
      const Planes planes(*plan, input, part);
      local[1] = recounted(local[1].toTensor(), planes.part, planes.whole, planes.begin);
    }
  }
  torch::jit::drop(stack, op.schema().arguments().size());
  for (const c10::IValue& value : local) {
    stack.emplace_back(from_parts(plan->mesh, plan->rows.output, plan->rows.output_sizes, value.toTensor()));
  }
  return true;
}

bool halo_backward(const c10::OperatorHandle& op, Stack& stack) {
  const auto plan = plan_for(op, stack);
  const Tensor grad = argument(stack, op, 0).toTensor();
  if (!plan || grad.sizes() != at::IntArrayRef(plan->rows.output_sizes)) return false;
  const Tensor input = argument(stack, op, plan->input_place).toTensor();
  const Tensor part = with_rows_around(*plan, input);
  const Tensor own = part_of(placed(grad, plan->mesh, plan->rows.output));
  Stack local = arguments_of(op, stack);
  localize_weights(*plan, op, local);
  const auto places = place_of(op, "indices");
  const Tensor own_places =
      places ? part_of(placed(local[*places].toTensor(), plan->mesh, plan->rows.output)) : Tensor();
  const size_t count = op.schema().returns().size();
  Stack results;
  if (own.numel() == 0) {  // nothing comes from here
    results.emplace_back(at::zeros_like(part));
    for (size_t i = 1; i < count; ++i) {
      const Tensor weight = local[*place_of(op, "weight")].toTensor();
      results.emplace_back(i == 1 ? at::zeros_like(weight) : at::zeros({weight.size(0)}, weight.options()));
    }
  } else {
    const Dims sizes = local_result_sizes(*plan, part);
    local[0] = embedded(*plan, own, sizes);
    local[plan->input_place] = part;
    if (places) {
      const Planes planes(*plan, input, part);
      Dims begin = planes.begin;
      for (int64_t& b : begin) b = -b;
      local[*places] = embedded(*plan, recounted(own_places, planes.whole, planes.part, begin), sizes);
    }
    if (const auto bias = place_of(op, "bias_sizes"); bias && local[*bias].isIntList()) {
      local[*bias] = Dims{local[*place_of(op, "weight")].toTensor().size(0)};
    }
    op.callBoxed(local);
    results = std::move(local);
  }
  const auto mask = place_of(op, "output_mask");
  const auto asked = [&](size_t i) { return !mask || argument(stack, op, *mask).toBoolList().get(i); };
  std::vector<Tensor> answers(count);
  if (asked(0)) {
    Tensor rows = results[0].toTensor();
    for (auto halo = plan->halos.rbegin(); halo != plan->halos.rend(); ++halo) {
      rows = halo->input.give_back(rows, halo->wanted);
    }
    // Channels that come out are summed over in the gradient of those that go in.
    Placements placements = plan->rows.input;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (plan->rows.weight[axis] == Placement(Shard(0))) placements[axis] = Partial();
    }
    answers[0] = from_parts(plan->mesh, placements, input.sizes().vec(), rows);
  }
  for (size_t i = 1; i < count; ++i) {
    if (!asked(i)) continue;
    // What has been cut along batch or space is summed over in the gradients of weight and bias.
    Placements placements = plan->rows.weight;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (is_shard(plan->rows.input[axis])) placements[axis] = Partial();
    }
    const Tensor weight = argument(stack, op, *place_of(op, "weight")).toTensor();
    answers[i] =
        from_parts(plan->mesh, placements, i == 1 ? weight.sizes().vec() : Dims{weight.size(0)}, results[i].toTensor());
  }
  torch::jit::drop(stack, op.schema().arguments().size());
  for (Tensor& result : answers) stack.emplace_back(std::move(result));
  return true;
}

}  // namespace sherd::detail
