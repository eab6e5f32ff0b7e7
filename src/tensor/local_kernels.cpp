#include "tensor/local_kernels.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/squeeze.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "rules/registry.h"
#include "sherd/error.h"

namespace sherd::detail {
namespace {

using torch::jit::Stack;

// Ids of rows that another rank has, and the ids as this rank counts them, 0 standing for those.
struct LocalIds {
  at::Tensor foreign;
  at::Tensor ids;
};

LocalIds local_ids(const at::Tensor& ids, const OpPlan& plan, int64_t stand_in) {
  const at::Tensor shifted = ids.sub(plan.mask_offset);
  const at::Tensor foreign = shifted.lt(0).logical_or_(shifted.ge(plan.mask_rows));
  return {foreign, shifted.masked_fill(foreign, stand_in)};
}

// A row that no rank has would be zeros without a word. On a GPU looking costs a wait, and torch's own kernel only
// stops the program there.
void check_ids(const at::Tensor& ids, const OpPlan& plan) {
  if (!ids.is_cpu() || ids.numel() == 0) return;
  const auto [least, most] = at::aminmax(ids);
  const auto first = least.item<int64_t>(), last = most.item<int64_t>();
  if (first >= 0 && last < plan.all_rows) return;
  throw c10::IndexError(ErrorText("embedding", "an index is out of range")
                            .fact("index", std::to_string(first < 0 ? first : last))
                            .fact("rows", std::to_string(plan.all_rows))
                            .help("indices from 0 to " + std::to_string(plan.all_rows - 1))
                            .str());
}

// embedding(weight, indices, ...) with rows of the weight sharded: zeros for rows that others have. A rank without rows
// looks up in one of zeros: what torch refuses, it refuses on every rank.
void masked_embedding(const c10::OperatorHandle&, const OpPlan& plan, Stack& stack) {
  const size_t base = stack.size() - 5;
  at::Tensor weight = stack[base].toTensor();
  const at::Tensor indices = stack[base + 1].toTensor();
  torch::jit::drop(stack, 5);
  check_ids(indices, plan);
  if (plan.mask_rows == 0) {
    Dims sizes = weight.sizes().vec();
    sizes[0] = 1;
    weight = at::zeros(sizes, weight.options());
  }
  const LocalIds local = local_ids(indices, plan, 0);
  stack.emplace_back(at::embedding(weight, local.ids).masked_fill_(local.foreign.unsqueeze(-1), 0));
}

// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale): rows of others go to one row too many,
// which is then cut off.
void masked_embedding_backward(const c10::OperatorHandle&, const OpPlan& plan, Stack& stack) {
  const size_t base = stack.size() - 5;
  const at::Tensor grad = stack[base].toTensor();
  const at::Tensor indices = stack[base + 1].toTensor();
  const int64_t padding = stack[base + 3].toInt();
  const bool scale = stack[base + 4].toBool();
  torch::jit::drop(stack, 5);
  const LocalIds local = local_ids(indices, plan, plan.mask_rows);
  const bool mine = padding >= plan.mask_offset && padding < plan.mask_offset + plan.mask_rows;
  const at::Tensor rows =
      at::embedding_dense_backward(grad, local.ids, plan.mask_rows + 1, mine ? padding - plan.mask_offset : -1, scale);
  stack.emplace_back(rows.narrow(0, 0, plan.mask_rows));
}

// squeeze: the dims of size 1 of the whole tensor, not of this rank's part.
void squeeze_whole_dims(const c10::OperatorHandle& op, const OpPlan& plan, Stack& stack) {
  const size_t arguments = op.schema().arguments().size();
  const at::Tensor local = stack[stack.size() - arguments].toTensor();
  torch::jit::drop(stack, arguments);
  const at::Tensor result = at::squeeze(local, plan.dims);
  stack.emplace_back(op.operator_name().name == "aten::squeeze_copy" ? result.clone() : result);
}

// view_as_real(self): a part may be the conjugate of its memory where the whole does not say so.
void view_as_real(const c10::OperatorHandle& op, const OpPlan&, Stack& stack) {
  stack.back() = stack.back().toTensor().resolve_conj();
  op.callBoxed(stack);
}

// new_empty_strided(self, size, stride, ...): the order of dims in memory that the strides ask for.
void new_empty_strided(const c10::OperatorHandle& op, const OpPlan& plan, Stack& stack) {
  const size_t base = stack.size() - op.schema().arguments().size();
  const Dims size = stack[base + 1].toIntVector();
  const Dims stride = stack[base + 2].toIntVector();
  const OutputPlan& output = plan.outputs.front();
  Dims whole = size;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (output.sizes[d] != -1) whole[d] = output.sizes[d];
  }
  stack[base + 2] = strides_like(size, whole, stride);
  op.callBoxed(stack);
}

// The choice between attention kernels must be the same on every rank, whatever its part: it is made for tensors of
// one batch and one head.
void fused_sdp_choice(const c10::OperatorHandle& op, const OpPlan&, Stack& stack) {
  const size_t base = stack.size() - op.schema().arguments().size();
  for (size_t i = 0; i < 4; ++i) {
    c10::IValue& value = stack[base + i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor tensor = value.toTensor();
    Dims sizes = tensor.sizes().vec();
    for (size_t d = 0; d + 2 < sizes.size(); ++d) sizes[d] = 1;
    value = at::empty(sizes, tensor.options());
  }
  op.callBoxed(stack);
}

void index_reduce(const c10::OperatorHandle& op, const OpPlan&, Stack& stack) { index_reduce_locally(op, stack); }

}  // namespace

// (self, dim, index, source, reduce, *, include_self): "iter.ninputs() == traits::arity INTERNAL ASSERT FAILED" there.
void index_reduce_locally(const c10::OperatorHandle& op, Stack& stack) {
  const size_t base = stack.size() - op.schema().arguments().size();
  const at::Tensor self = stack[base].toTensor();
  const bool fails = c10::isReducedFloatingType(self.scalar_type()) && self.dim() > 1 && self.is_cpu() &&
                     self.numel() == self.size(stack[base + 1].toInt()) && stack[base + 4].toStringView() == "prod";
  if (!fails) {
    op.callBoxed(stack);
    return;
  }
  stack[base] = self.to(at::kFloat);
  stack[base + 3] = stack[base + 3].toTensor().to(at::kFloat);
  op.callBoxed(stack);
  const at::Tensor product = stack.back().toTensor();
  stack.back() = op.schema().is_mutable() ? self.copy_(product) : product.to(self.scalar_type());
}

LocalKernel local_kernel_for(const OpInfo& info, const OpPlan&, bool masked) {
  const std::string base = rules::base_name(info.name);
  if (base == "aten::squeeze" || base == "aten::squeeze_copy") return squeeze_whole_dims;
  if (base == "aten::view_as_real") return view_as_real;
  if (base == "aten::new_empty_strided") return new_empty_strided;
  if (base == "aten::_fused_sdp_choice") return fused_sdp_choice;
  if (base == "aten::index_reduce") return index_reduce;
  if (!masked) return nullptr;
  if (base == "aten::embedding") return masked_embedding;
  if (base == "aten::embedding_dense_backward") return masked_embedding_backward;
  return nullptr;
}

}  // namespace sherd::detail
