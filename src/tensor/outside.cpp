// A rank outside the mesh computes nothing. It needs the sizes and dtypes of the results, which operators give on
// tensors without data.

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tensor/dispatch.h"
#include "tensor/infer.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// For operators that want data, which kernels may read as it lies: zeros. Their memory is that of the system's one page
// of zeros, unless it is little or somebody writes to it.
Tensor of_zeros(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const auto bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  void* memory = std::calloc(std::max<size_t>(bytes, 1), 1);
  if (memory == nullptr) throw std::bad_alloc();
  const auto options = tensor.options().device(c10::kCPU).requires_grad(std::nullopt);
  return at::from_blob(memory, tensor.sizes(), &std::free, options);
}

// For those that refuse matrices of zeros: the simplest ones that have an inverse.
Tensor of_one(const Tensor& tensor) {
  Tensor ones = of_zeros(tensor);
  const bool is_matrix = ones.defined() && ones.dim() >= 2 && (ones.is_floating_point() || ones.is_complex());
  if (is_matrix) ones.diagonal(0, -2, -1).fill_(1);
  return ones;
}

template <class Make>
Stack run_on(const Make& make, const c10::OperatorHandle& op, const OpInfo& info, const Stack& stack) {
  Stack copy(stack.end() - static_cast<int64_t>(info.arguments.size()), stack.end());
  for (c10::IValue& value : copy) {
    if (value.isTensor()) {
      value = make(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(make(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? std::optional(make(element.toTensor())) : std::nullopt);
      }
      value = std::move(list);
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    }
  }
  op.callBoxed(copy);
  return copy;
}

Stack run_on_zeros(const c10::OperatorHandle& op, const OpInfo& info, const Stack& stack) {
  try {
    return run_on(of_zeros, op, info, stack);
  } catch (const c10::Error&) {
    return run_on(of_one, op, info, stack);  // refused again, it is
  }
}

// A tensor of the result's size of which this rank has nothing.
Tensor nothing_of(const Tensor& result, const OpPlan& plan, const OutputPlan& output) {
  if (!result.defined()) return result;
  const Tensor local = at::empty({0}, result.options().device(plan.mesh->device()));
  return wrap(intern_spec(*plan.mesh, output.placements, result.sizes().vec(), result.strides().vec()), local);
}

// A tensor becomes one of this form of which this rank has nothing.
void assign(const Tensor& tensor, const Tensor& nothing) {
  DTensorMeta* meta = meta_of(tensor);
  meta->spec = meta_of(nothing)->spec;
  meta->local = meta_of(nothing)->local;
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(nothing.sizes(), nothing.strides());
}

// What an out= is resized to, it is resized to here, too.
void resize_outs(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan, const Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  Stack call(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  for (size_t i = 0; i < call.size(); ++i) {
    if (info.arguments[i].out && call[i].isTensor()) call[i] = at::empty({0}, call[i].toTensor().options());
  }
  auto shapes = run_without_data(op, info, call);
  const Stack results = shapes ? std::move(*shapes) : run_on_zeros(op, info, call);
  for (size_t i = 0; i < info.return_of.size(); ++i) {
    if (info.return_of[i] < 0) continue;
    const Tensor out = stack[base + static_cast<size_t>(info.return_of[i])].toTensor();
    const Tensor result = results[i].toTensor();
    if (meta_of(out) == nullptr || out.sizes() == result.sizes()) continue;
    assign(out, nothing_of(result, plan, plan.outputs[std::min(i, plan.outputs.size() - 1)]));
  }
}

// In place and out=: the tensors are what they were, but for their shape.
void keep_written(const c10::OperatorHandle& op, const OpInfo& info, const OpPlan& plan, Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  std::vector<c10::IValue> results;
  for (const int argument : info.return_of) {
    results.push_back(argument >= 0 ? stack[base + static_cast<size_t>(argument)] : c10::IValue());
  }
  if (info.is_inplace_view && !results.empty()) {
    if (const auto shapes = run_without_data(op, info, stack)) {
      assign(results.front().toTensor(), nothing_of(shapes->front().toTensor(), plan, plan.outputs.front()));
    }
  }
  if (info.has_out) resize_outs(op, info, plan, stack);
  torch::jit::drop(stack, info.arguments.size());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

}  // namespace

void execute_outside(const c10::OperatorHandle& op, const OpInfo& info, OpPlan& plan, Stack& stack) {
  settle_leaves(info, stack);
  if (info.writes) {
    keep_written(op, info, plan, stack);
    return;
  }
  auto shapes = run_without_data(op, info, stack);
  Stack results = shapes ? std::move(*shapes) : run_on_zeros(op, info, stack);
  torch::jit::drop(stack, info.arguments.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const OutputPlan& output = plan.outputs[std::min(i, plan.outputs.size() - 1)];
    c10::IValue& value = results[i];
    if (value.isTensor()) {
      value = nothing_of(value.toTensor(), plan, output);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(nothing_of(tensor, plan, output));
      value = std::move(list);
    }
    stack.push_back(std::move(value));
  }
}

}  // namespace sherd::detail
