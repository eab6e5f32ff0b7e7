#include "tensor/halo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

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

// How the windows of one spatial dim lie: window i begins at row i * stride - padding and reaches `reach` rows.
struct Windows {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t reach = 1;
  bool hangs_over = false;  // ceil_mode: the last one may end beyond the padding

  /// How many there are over so many rows, as torch counts them.
  int64_t count(int64_t rows) const {
    const int64_t room = rows + 2 * padding - reach + (hangs_over ? stride - 1 : 0);
    if (room < 0) return 0;
    const int64_t windows = room / stride + 1;
    return hangs_over && (windows - 1) * stride >= rows + padding ? windows - 1 : windows;
  }
};

// An int[] argument that may hold one number for all dims; `otherwise` where it is empty or there is none.
int64_t number_for(const c10::OperatorHandle& op, const Stack& stack, const char* name, size_t i, int64_t otherwise) {
  const auto place = place_of(op, name);
  if (!place) return otherwise;
  const Dims list = argument(stack, op, *place).toIntVector();
  return list.empty() ? otherwise : list[list.size() == 1 ? 0 : i];
}

// The tensors that a call is about, and where they stand among its arguments.
struct Call {
  bool is_convolution = false;
  size_t input = 0;
  int64_t spatial = 0;  // the first of the dims that windows move along
  std::vector<Windows> windows;
};

Call read(const c10::OperatorHandle& op, const Stack& stack) {
  Call call;
  const std::string& name = op.operator_name().name;
  call.is_convolution = name.starts_with("aten::convolution");
  call.input = *place_of(op, call.is_convolution ? "input" : "self");
  const Tensor input = argument(stack, op, call.input).toTensor();
  const auto weight = place_of(op, "weight");
  const auto ceil = place_of(op, "ceil_mode");
  const int64_t dims = call.is_convolution ? input.dim() - 2 : name.find("3d") != std::string::npos ? 3 : 2;
  call.spatial = input.dim() - dims;
  for (size_t i = 0; i < static_cast<size_t>(dims); ++i) {
    const int64_t kernel = call.is_convolution
                               ? argument(stack, op, *weight).toTensor().size(static_cast<int64_t>(i) + 2)
                               : number_for(op, stack, "kernel_size", i, 1);
    const int64_t dilation = number_for(op, stack, "dilation", i, 1);
    call.windows.push_back({.stride = number_for(op, stack, "stride", i, call.is_convolution ? 1 : kernel),
                            .padding = number_for(op, stack, "padding", i, 0),
                            .reach = dilation * (kernel - 1) + 1,
                            .hangs_over = ceil && argument(stack, op, *ceil).toBool()});
  }
  return call;
}

bool is_transposed(const c10::OperatorHandle& op, const Stack& stack) {
  const auto place = place_of(op, "transposed");
  return place && argument(stack, op, *place).toBool();
}

// What one sharded dim needs: the pieces of the input and of the result, and the rows that each piece wants. The local
// operator pads its rows as the whole one does, so a part begins at a multiple of the stride, so far ahead of its first
// window that the padding only matters where it is the whole's.
struct Halo {
  Pieces input;
  Pieces output;
  WantedRows wanted;
  int64_t skip = 0;  // results of the local operator before this rank's first

  Halo(Pieces in, Pieces out, const Windows& windows, int64_t size) : input(std::move(in)), output(std::move(out)) {
    for (size_t i = 0; i < output.count(); ++i) {
      const Rows& rows = output[i];
      if (rows.size() == 0) {
        wanted.emplace_back();
        continue;
      }
      const int64_t lead = (windows.padding + windows.stride - 1) / windows.stride;
      int64_t first = std::max<int64_t>(0, rows.begin - lead);
      // Some operators refuse fewer rows than a window has.
      while (first > 0 && size - first * windows.stride < windows.reach) --first;
      const int64_t begin = first * windows.stride;
      const int64_t end = std::max((rows.end - 1) * windows.stride - windows.padding, begin) + windows.reach;
      wanted.push_back({{begin, std::min(size, end)}});
      if (i == output.here()) skip = rows.begin - first;
    }
  }
  int64_t dim() const { return input.dim(); }
  Rows mine() const { return wanted[input.here()].empty() ? Rows() : wanted[input.here()][0]; }
};

// Everything that a call needs to know before data moves.
struct Plan {
  Call call;
  DeviceMesh mesh;
  Placements input;   // of input and of its gradient
  Placements weight;  // of weight and bias, dim 0 being that of the channels that come out
  Placements output;
  Dims output_sizes;
  std::vector<Halo> halos;
};

// Nothing where no spatial dim is sharded in pieces. Batch and channels that come out may be sharded beside them.
std::optional<Plan> plan_for(const c10::OperatorHandle& op, const Stack& stack) {
  const auto weight_place = place_of(op, "weight");
  const Tensor input = argument(stack, op, *place_of(op, weight_place ? "input" : "self")).toTensor();
  const DTensorMeta* meta = meta_of(input);
  if (meta == nullptr || is_transposed(op, stack)) return std::nullopt;
  if (weight_place && argument(stack, op, *weight_place).toTensor().dim() != input.dim()) return std::nullopt;
  Call call = read(op, stack);
  Dims output_sizes = input.sizes().vec();
  if (weight_place) output_sizes[1] = argument(stack, op, *weight_place).toTensor().size(0);
  for (size_t i = 0; i < call.windows.size() && call.spatial > 0; ++i) {
    int64_t& rows = output_sizes[static_cast<size_t>(call.spatial) + i];
    rows = call.windows[i].count(rows);
  }
  Dims spatial;
  for (size_t i = 0; i < call.windows.size(); ++i) spatial.push_back(call.spatial + static_cast<int64_t>(i));
  if (call.spatial < 1 || !any_sharded(input, spatial)) return std::nullopt;
  const auto axes = static_cast<size_t>(meta->spec->mesh.ndim());
  Plan plan{.call = std::move(call),
            .mesh = meta->spec->mesh,
            .input = grad_placements_for(meta->spec->placements),
            .weight = Placements(axes, Replicate()),
            .output = Placements(axes, Replicate()),
            .output_sizes = output_sizes,
            .halos = {}};
  const auto groups = place_of(op, "groups");
  const bool grouped = groups && argument(stack, op, *groups).toInt() != 1;
  const DTensorMeta* weight = weight_place ? meta_of(argument(stack, op, *weight_place).toTensor()) : nullptr;
  for (size_t axis = 0; axis < axes; ++axis) {
    Placement& p = plan.input[axis];
    const int64_t dim = sharded_dim(p);
    if (dim >= plan.call.spatial) {
      plan.output[axis] = Shard(dim);
    } else if (dim >= 0 && (dim == 0 || !plan.call.is_convolution)) {
      plan.output[axis] = p;  // each image, and in a pool each channel, stands alone
    } else {
      p = Replicate();
      const bool channels = weight != nullptr && !grouped && weight->spec->placements[axis] == Placement(Shard(0));
      if (channels) {
        plan.weight[axis] = Shard(0);
        plan.output[axis] = Shard(1);
      }
    }
  }
  for (size_t i = 0; i < spatial.size(); ++i) {
    if (!is_sharded(*meta, spatial[i])) continue;
    auto in = Pieces::of(plan.mesh, plan.input, meta->spec->sizes, spatial[i]);
    auto out = Pieces::of(plan.mesh, plan.output, output_sizes, spatial[i]);
    if (!in || !out) return std::nullopt;
    plan.halos.emplace_back(*in, *out, plan.call.windows[i], input.size(spatial[i]));
  }
  return plan;
}

// This rank's rows of the input with those around them.
Tensor with_rows_around(const Plan& plan, const Tensor& input) {
  Tensor part = part_of(placed(input, plan.mesh, plan.input));
  for (const Halo& halo : plan.halos) part = halo.input.exchange(part, halo.wanted);
  return part;
}

// Puts weight and bias on the local call.
void localize_weights(const Plan& plan, const c10::OperatorHandle& op, Stack& local) {
  for (const char* name : {"weight", "bias"}) {
    const auto place = place_of(op, name);
    if (!place || !plan.call.is_convolution || !local[*place].isTensor() || !local[*place].toTensor().defined())
      continue;
    local[*place] = part_of(placed(local[*place].toTensor(), plan.mesh, plan.weight));
  }
}

Stack arguments_of(const c10::OperatorHandle& op, const Stack& stack) {
  return Stack(stack.end() - static_cast<int64_t>(op.schema().arguments().size()), stack.end());
}

// The size of this rank's part of the result.
Dims part_sizes(const Plan& plan) {
  const Dims here = plan.mesh.coordinate().value_or(Dims(plan.output.size(), 0));
  return local_shape({plan.mesh.mesh(), plan.output_sizes, plan.output}, here);
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
      const int64_t dim = plan.call.spatial + static_cast<int64_t>(i);
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
    const Windows& windows = plan.call.windows[d - static_cast<size_t>(plan.call.spatial)];
    sizes[d] = windows.count(part.size(halo.dim()));
  }
  return sizes;
}

}  // namespace

bool with_halo(const c10::OperatorHandle& op, Stack& stack) {
  const auto plan = plan_for(op, stack);
  if (!plan) return false;
  const Call& call = plan->call;
  const Tensor input = argument(stack, op, call.input).toTensor();
  const Tensor part = with_rows_around(*plan, input);
  Stack local = arguments_of(op, stack);
  local[call.input] = part;
  localize_weights(*plan, op, local);
  const size_t count = op.schema().returns().size();
  const Dims own = part_sizes(*plan);
  if (numel(own) == 0) {  // operators refuse tensors without rows
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
    stack.emplace_back(from_parts(plan->mesh, plan->output, plan->output_sizes, value.toTensor()));
  }
  return true;
}

bool halo_backward(const c10::OperatorHandle& op, Stack& stack) {
  const auto plan = plan_for(op, stack);
  const Tensor grad = argument(stack, op, 0).toTensor();
  if (!plan || grad.sizes() != at::IntArrayRef(plan->output_sizes)) return false;
  const Call& call = plan->call;
  const Tensor input = argument(stack, op, call.input).toTensor();
  const Tensor part = with_rows_around(*plan, input);
  const Tensor own = part_of(placed(grad, plan->mesh, plan->output));
  Stack local = arguments_of(op, stack);
  localize_weights(*plan, op, local);
  const auto places = place_of(op, "indices");
  const Tensor own_places = places ? part_of(placed(local[*places].toTensor(), plan->mesh, plan->output)) : Tensor();
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
    local[call.input] = part;
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
    Placements placements = plan->input;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (plan->weight[axis] == Placement(Shard(0))) placements[axis] = Partial();
    }
    answers[0] = from_parts(plan->mesh, placements, input.sizes().vec(), rows);
  }
  for (size_t i = 1; i < count; ++i) {
    if (!asked(i)) continue;
    // What has been cut along batch or space is summed over in the gradients of weight and bias.
    Placements placements = plan->weight;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (is_shard(plan->input[axis])) placements[axis] = Partial();
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
