#include "tensor/padding.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace sherd::detail {
namespace {

using at::Tensor;

// One row where this rank has none of the whole's; dims that the whole has no rows of stay empty.
Tensor padded(const Tensor& tensor, const Dims& whole) {
  if (tensor.numel() != 0) return tensor;
  Dims sizes = tensor.sizes().vec();
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max<int64_t>(sizes[d], whole[d] > 0 ? 1 : 0);
  return at::zeros(sizes, tensor.options());
}

// The largest or smallest value of a dtype.
at::Scalar extreme(c10::ScalarType type, bool largest) {
  if (c10::isFloatingType(type)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return largest ? infinity : -infinity;
  }
  switch (type) {
    case c10::ScalarType::Bool:
      return largest;
    case c10::ScalarType::Byte:
      return largest ? 255 : 0;
    case c10::ScalarType::Char:
      return largest ? 127 : -128;
    case c10::ScalarType::Short:
      return largest ? 32767 : -32768;
    case c10::ScalarType::Int:
      return largest ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min();
    default:
      return largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  }
}

Tensor neutral_like(const Tensor& tensor, ReduceOp op) {
  switch (op) {
    case ReduceOp::product:
      return at::full_like(tensor, 1);
    case ReduceOp::max:
      return at::full_like(tensor, extreme(tensor.scalar_type(), false));
    case ReduceOp::min:
      return at::full_like(tensor, extreme(tensor.scalar_type(), true));
    default:
      return at::full_like(tensor, 0);
  }
}

// Whether this rank has none of the rows that a mesh axis cuts: what it adds to a Partial of that axis is nothing. A
// rank that was padded for the sake of another axis does add its part.
bool adds_nothing(const OpPlan& plan, size_t axis) {
  for (const InputPlan& input : plan.inputs) {
    if (input.to.empty() || !is_shard(input.to[axis])) continue;
    const auto dim = static_cast<size_t>(sharded_dim(input.to[axis]));
    const Layout layout{plan.mesh->mesh(), input.shape, input.to};
    if (input.shape[dim] > 0 && local_shape(layout, *plan.mesh->coordinate())[dim] == 0) return true;
  }
  return false;
}

Tensor cut(const Tensor& result, const OutputPlan& output, const OpPlan& plan) {
  const DeviceMesh& mesh = *plan.mesh;
  Dims sizes = result.sizes().vec();
  for (size_t d = 0; d < sizes.size() && d < output.sizes.size(); ++d) {
    if (output.sizes[d] != -1) sizes[d] = output.sizes[d];
  }
  const Dims expected = local_shape({mesh.mesh(), sizes, output.placements}, *mesh.coordinate());
  Tensor part = result;
  bool was_cut = false;
  for (size_t d = 0; d < expected.size(); ++d) {
    if (expected[d] != 0) continue;
    part = part.narrow(static_cast<int64_t>(d), 0, 0);
    was_cut = true;
  }
  if (was_cut) return part.clone();
  for (size_t axis = 0; axis < output.placements.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&output.placements[axis]);
    if (partial == nullptr || !adds_nothing(plan, axis)) continue;
    return plan.adds && partial->op == ReduceOp::sum ? part : neutral_like(part, partial->op);
  }
  return part;
}

}  // namespace

void call_padded(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan, torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  size_t input = 0;
  const auto pad = [&](const Tensor& tensor) {
    const Dims& whole = plan.inputs[input++].shape;
    return tensor.defined() ? padded(tensor, whole) : tensor;
  };
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].out) continue;
    c10::IValue& value = stack[base + i];
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      if (value.isTensor()) {
        value = pad(value.toTensor());
      } else {
        ++input;
      }
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(pad(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        const Tensor tensor = pad(element.isTensor() ? element.toTensor() : Tensor());
        list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
      }
      value = std::move(list);
    }
  }
  op.callBoxed(stack);
  const size_t count = info.return_of.size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = stack[stack.size() - count + i];
    const OutputPlan& output = plan.outputs[std::min(i, plan.outputs.size() - 1)];
    if (value.isTensor() && value.toTensor().defined()) {
      value = cut(value.toTensor(), output, plan);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(cut(tensor, output, plan));
      value = std::move(list);
    }
  }
}

}  // namespace sherd::detail
