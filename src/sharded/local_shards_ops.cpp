#include "sharded/local_shards_ops.h"

#include <ATen/InferSize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "comm/errors.h"
#include "sharded/local_shards.h"
#include "tensor/rewrite_tools.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

const LocalShardsLayout* layout_of_first(const c10::OperatorHandle& op, const Stack& stack) {
  const c10::IValue& self = argument(stack, op, 0);
  return self.isTensor() ? local_shards_layout(self.toTensor()) : nullptr;
}

Tensor remade(const Tensor& wrapper, std::vector<Tensor> pieces) {
  return wrap_pieces(boxes_of(wrapper)->layout, std::move(pieces), wrapper.scalar_type(), wrapper.device());
}

Tensor gathered_here(const LocalShardsLayout& layout, const Tensor& wrapper) {
  const auto& pieces = boxes_of(wrapper)->pieces;
  const auto options = at::TensorOptions(wrapper.scalar_type()).device(wrapper.device());
  int64_t elements = 0;
  for (const Box& box : layout.boxes) elements += numel(box);
  if (elements == numel(layout.size)) {
    const Tensor dense = at::empty(layout.size, options);
    for (size_t i = 0; i < pieces.size(); ++i) part_of(dense, layout.boxes[i]).copy_(pieces[i]);
    return dense;
  }
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return layout.chunks[a].offsets < layout.chunks[b].offsets; });
  std::vector<Tensor> flat;
  for (const size_t i : order) flat.push_back(pieces[i].reshape({-1}));
  return at::cat(flat);
}

}  // namespace

bool view_of_shards(const c10::OperatorHandle& op, Stack& stack) {
  const LocalShardsLayout* layout = layout_of_first(op, stack);
  if (layout == nullptr || !argument(stack, op, 1).isIntList()) return false;
  const Tensor self = argument(stack, op, 0).toTensor();
  const Dims asked = argument(stack, op, 1).toIntVector();
  if (at::infer_size(asked, self.numel()) != layout->size) {
    throw_value_error(ErrorText("view", "a LocalShardsWrapper keeps its size: its offsets have no meaning in another")
                          .fact("wrapper", to_string(LocalShardsWrapper(self)))
                          .fact("asked", to_string(asked))
                          .help("view the shards themselves: wrapper.local_shards()[i].view(...)"));
  }
  std::vector<Tensor> pieces;
  for (const Tensor& piece : boxes_of(self)->pieces) pieces.push_back(piece.alias());
  answer(op, stack, remade(self, std::move(pieces)));
  return true;
}

bool new_beside_shards(const c10::OperatorHandle& op, Stack& stack) {
  const LocalShardsLayout* layout = layout_of_first(op, stack);
  if (layout == nullptr || argument(stack, op, 1).toIntVector() == layout->size) return false;
  const Tensor self = argument(stack, op, 0).toTensor();
  Stack call = arguments_of(stack, op);
  call[0] = at::empty({0}, at::TensorOptions(self.scalar_type()).device(self.device()));
  op.callBoxed(call);
  answer(op, stack, call[0]);
  return true;
}

bool all_gather_shards(const c10::OperatorHandle& op, Stack& stack) {
  const LocalShardsLayout* layout = layout_of_first(op, stack);
  if (layout == nullptr) return false;
  Stack call = arguments_of(stack, op);
  call[0] = gathered_here(*layout, call[0].toTensor());
  op.callBoxed(call);
  answer(op, stack, call[0]);
  return true;
}

bool wait_for_shards(const c10::OperatorHandle& op, Stack& stack) {
  if (layout_of_first(op, stack) == nullptr) return false;
  const Tensor self = argument(stack, op, 0).toTensor();
  std::vector<Tensor> pieces;
  for (const Tensor& piece : boxes_of(self)->pieces) {
    Stack call = {piece};
    op.callBoxed(call);
    pieces.push_back(call[0].toTensor());
  }
  answer(op, stack, remade(self, std::move(pieces)));
  return true;
}

}  // namespace sherd::detail
