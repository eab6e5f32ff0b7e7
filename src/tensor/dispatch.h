#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tensor/op_info.h"
#include "tensor/op_plan.h"

namespace sherd::detail {

/// Runs the call on the stack by its plan.
void execute(const c10::OperatorHandle& op, const OpInfo& info, OpPlan& plan, torch::jit::Stack& stack);

/// The same on a rank outside the mesh, which has a part of nothing.
void execute_outside(const c10::OperatorHandle& op, const OpInfo& info, OpPlan& plan, torch::jit::Stack& stack);

/// The spec of an operator's k-th tensor of its i-th result. Throws where the local result is not what the rule says.
const SpecPtr& find_spec(const OpInfo& info, OpPlan& plan, const at::Tensor& local, size_t i, size_t k);
/// The same where it is known and was checked before, else null.
inline const SpecPtr* checked_spec(const OpPlan& plan, size_t i, size_t k) {
  const OutputPlan& output = plan.outputs[i < plan.outputs.size() ? i : plan.outputs.size() - 1];
  return output.checked && k < output.known.size() ? &output.known[k] : nullptr;
}

/// What a view is a view of, as the operator on local tensors gets it.
struct Viewed {
  const Spec& spec;
  const at::Tensor& local;
  int64_t begin;    // its storage_offset()
  bool has_memory;  // that of the whole is around it
};

/// Says where a view of some elements begins, and that what it is a part of is around it, where every rank has all of
/// that in memory as its strides say. storage_offset() is 0 otherwise.
void place_view(const Viewed& viewed, const at::Tensor& view);

/// Runs a call on lists of tensors element by element: foreach and fused optimizer operators.
void execute_foreach(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

/// Runs a call whose out= are lists: as the operator without them, whose results they take.
void execute_into_lists(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

/// Makes the gradient that reaches a leaf take the leaf's placements before it is accumulated. Does nothing with other
/// tensors, and once it was done.
void hook_leaf(const at::Tensor& tensor);

/// Makes the gradient of a plain tensor that meets DTensors plain, and whole on every rank, as the tensor counts. Does
/// nothing with those that no gradient is asked of, and once it was done.
void hook_plain(const at::Tensor& tensor);

/// Either, as the tensor is.
void settle(const at::Tensor& tensor);

/// The same for all tensors of a call: rewrites work on the parts themselves, and ranks outside the mesh on nothing.
void settle_leaves(const OpInfo& info, const torch::jit::Stack& stack);

/// Throws: DTensors stay on the devices of their mesh.
[[noreturn]] void refuse_device(const OpInfo& info, const DeviceMesh& mesh, c10::Device asked);

/// Operators registered since the last call get their kernel.
void add_kernels_of_new_operators();

/// How many plans this thread keeps, and forgetting them; for tests and benchmarks.
size_t cached_plans();
void forget_plans();

}  // namespace sherd::detail
