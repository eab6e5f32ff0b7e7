#include "sharded/call_tensors.h"

#include "comm/errors.h"
#include "comm/rank_list.h"
#include "sharded/boxed_dtensors.h"
#include "sharded/moves.h"

namespace sherd::detail {

using at::Tensor;
using torch::jit::Stack;

std::vector<CallTensor> tensors_of(const OpInfo& info, const Stack& stack) {
  std::vector<CallTensor> tensors;
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (info.arguments[i].out) continue;
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      tensors.push_back({value.isTensor() ? value.toTensor() : Tensor(), i, -1});
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isList()) {
      const auto list = value.toListRef();
      for (size_t k = 0; k < list.size(); ++k) {
        tensors.push_back({list[k].isTensor() ? list[k].toTensor() : Tensor(), i, static_cast<int>(k)});
      }
    }
  }
  return tensors;
}

void put_tensor(Stack& arguments, const CallTensor& place, const Tensor& tensor) {
  c10::IValue& value = arguments[place.argument];
  if (place.element < 0) {
    if (value.isTensor()) value = tensor;
    return;
  }
  const auto k = static_cast<size_t>(place.element);
  if (value.isTensorList()) {
    auto list = value.toTensorList().copy();
    list.set(k, tensor);
    value = std::move(list);
  } else {
    auto list = value.toOptionalTensorList().copy();
    if (tensor.defined()) list.set(k, tensor);
    value = std::move(list);
  }
}

Tensor aligned(const std::string& operation, const Tensor& tensor, const BoxLayoutPtr& layout) {
  const BoxesMeta* meta = boxes_of(tensor);
  if (meta->layout == layout) return tensor;
  const auto sharded = std::dynamic_pointer_cast<const ShardedLayout>(layout);
  const ShardedLayout* has = sharded_layout(tensor);
  if (sharded && has != nullptr) {
    if (!(has->holders == sharded->holders)) {
      throw_error(ErrorText(operation, "the tensors belong to different groups")
                      .fact("one", "ranks " + rank_list(sharded->holders.ranks()))
                      .fact("other", "ranks " + rank_list(has->holders.ranks()))
                      .help("make both on one group"));
    }
    return same_layout(*has, *sharded) ? tensor : exchanged(tensor, sharded);
  }
  const auto to = std::dynamic_pointer_cast<const HeldBoxes>(layout);
  const auto from = std::dynamic_pointer_cast<const HeldBoxes>(meta->layout);
  if (to && from) return from_boxes_to_boxes(operation, tensor, from, to);
  const auto places = [](const BoxLayout& one) -> const std::vector<Box>& {
    return one.outer ? one.outer->boxes : one.boxes;
  };
  if (!sharded && has == nullptr && places(*meta->layout) == places(*layout)) return tensor;
  ErrorText text(operation, "the tensors lie in different pieces");
  for (const BoxLayout* one : {layout.get(), meta->layout.get()}) {
    std::string boxes;
    for (const Box& box : places(*one)) boxes += (boxes.empty() ? "" : ", ") + to_string(box);
    text.fact("pieces", boxes.empty() ? "none" : boxes);
  }
  throw_value_error(text.help("make both of the same rectangles"));
}

}  // namespace sherd::detail
