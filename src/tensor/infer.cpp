#include "tensor/infer.h"

#include <ATen/ops/empty_strided.h>

#include "tensor/spec.h"

namespace sherd::detail {
namespace {

using at::Tensor;

Tensor without_data(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
}

c10::IValue without_data(const c10::IValue& value) {
  if (value.isTensor()) return without_data(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(without_data(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional(without_data(element.toTensor())) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kMeta);
  return value;
}

Geometry geometry_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.sizes().vec(), tensor.strides().vec()};
}

// Element by element on tensors of one size, such as relu, which knows nothing without data.
std::optional<std::vector<std::vector<Geometry>>> infer_elementwise(const OpInfo& info,
                                                                    const torch::jit::Stack& stack) {
  if (!info.is_pointwise || info.return_of.size() != 1) return std::nullopt;
  std::optional<Geometry> result;
  for (size_t i = stack.size() - info.arguments.size(); i < stack.size(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    const Tensor& tensor = stack[i].toTensor();
    if (result && tensor.sizes() != at::IntArrayRef(result->sizes)) return std::nullopt;
    if (result) continue;
    result = geometry_of(tensor);
    if (!tensor.is_non_overlapping_and_dense()) result->strides = contiguous_strides(result->sizes);
  }
  if (!result) return std::nullopt;
  return std::vector<std::vector<Geometry>>{{*result}};
}

}  // namespace

std::optional<torch::jit::Stack> run_without_data(const c10::OperatorHandle& op, const OpInfo& info,
                                                  const torch::jit::Stack& stack) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  torch::jit::Stack copy;
  for (size_t i = stack.size() - info.arguments.size(); i < stack.size(); ++i) copy.push_back(without_data(stack[i]));
  const torch::jit::Stack held = info.writes ? copy : torch::jit::Stack();  // as Execution's fresh_outs_
  try {
    op.callBoxed(copy);
  } catch (const std::exception&) {
    return std::nullopt;  // the call itself will say what is wrong, if anything is
  }
  return copy;
}

std::optional<std::vector<std::vector<Geometry>>> infer_results(const c10::OperatorHandle& op, const OpInfo& info,
                                                                const torch::jit::Stack& stack) {
  if (info.writes && !info.is_inplace_view) return std::nullopt;
  const auto shapes = run_without_data(op, info, stack);
  if (!shapes) return infer_elementwise(info, stack);
  std::vector<std::vector<Geometry>> results;
  for (const c10::IValue& value : *shapes) {
    auto& tensors = results.emplace_back();
    if (value.isTensor()) {
      if (value.toTensor().defined() && !value.toTensor().is_meta()) return std::nullopt;
      tensors.push_back(geometry_of(value.toTensor()));
    } else if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) tensors.push_back(geometry_of(tensor));
    }
  }
  return results;
}

}  // namespace sherd::detail
