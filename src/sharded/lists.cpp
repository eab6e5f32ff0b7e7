// Operators on lists of tensors, those of optimizers above all: the lists become lists of pieces.

#include "comm/errors.h"
#include "sharded/boxed_dtensors.h"
#include "sharded/by_pieces.h"
#include "sharded/call_tensors.h"
#include "sharded/layout.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Where the k-th tensors of all lists lie: the pieces of the first of them that lies in boxes.
using Layouts = std::vector<BoxLayoutPtr>;

size_t pieces_of(const BoxLayoutPtr& layout) { return layout ? layout->boxes.size() : 1; }

Layouts layouts_of(const OpInfo& info, const Stack& stack) {
  Layouts layouts;
  for (const CallTensor& place : tensors_of(info, stack)) {
    if (place.element < 0) continue;
    const auto k = static_cast<size_t>(place.element);
    if (k >= layouts.size()) layouts.resize(k + 1);
    const BoxesMeta* meta = boxes_of(place.tensor);
    if (meta != nullptr && !layouts[k]) layouts[k] = meta->layout;
  }
  return layouts;
}

// The part of a plain tensor that goes with a box; dims of one row are broadcast.
Tensor part_for(const Tensor& tensor, const BoxLayout& layout, const Box& box) {
  Tensor part = tensor;
  const auto shift = static_cast<int64_t>(layout.size.size()) - tensor.dim();
  for (int64_t d = 0; d < tensor.dim() && shift >= 0; ++d) {
    const auto dim = static_cast<size_t>(d + shift);
    if (tensor.size(d) == layout.size[dim] && tensor.size(d) != 1)
      part = part.narrow(d, box.offset[dim], box.size[dim]);
  }
  return part;
}

// What is written keeps its place, so the tensors that it is computed with come to it, not it to them.
void check_written(const OpInfo& info, const Tensor& tensor) {
  if (boxes_of(tensor) != nullptr) return;
  const DTensorMeta* meta = meta_of(tensor);
  throw_value_error(ErrorText(info.short_name(), "a tensor that is not in pieces cannot be written from one that is")
                        .fact("written", meta != nullptr ? describe(*meta->spec, tensor.scalar_type())
                                                         : to_string(tensor.sizes().vec()))
                        .help("gather the other one first, or bring this one to its pieces"));
}

c10::List<Tensor> expanded(const OpInfo& info, const std::vector<Tensor>& list, const Layouts& layouts, bool written) {
  c10::List<Tensor> result;
  for (size_t k = 0; k < list.size(); ++k) {
    if (!layouts[k]) {
      result.push_back(list[k]);
      continue;
    }
    if (written) check_written(info, list[k]);
    const auto* held = dynamic_cast<const HeldBoxes*>(layouts[k].get());
    const bool in_dtensor = held != nullptr && meta_of(list[k]) != nullptr;
    const bool in_boxes = in_dtensor || boxes_of(list[k]) != nullptr;
    const Tensor there = in_dtensor ? operand_in_boxes(info, list[k], *held)
                         : in_boxes ? aligned(info.short_name(), list[k], layouts[k])
                                    : list[k];
    for (size_t i = 0; i < layouts[k]->boxes.size(); ++i) {
      result.push_back(in_boxes ? boxes_of(there)->pieces[i] : part_for(there, *layouts[k], layouts[k]->boxes[i]));
    }
  }
  return result;
}

// A list of numbers, one per tensor.
c10::IValue expanded_numbers(const c10::IValue& value, const Layouts& layouts) {
  if (!value.isList() || value.toListRef().size() != layouts.size()) return value;
  auto list = value.toList();
  auto result = c10::impl::GenericList(list.elementType());
  for (size_t k = 0; k < layouts.size(); ++k) {
    for (size_t i = 0; i < pieces_of(layouts[k]); ++i) result.push_back(list.get(k));
  }
  return result;
}

c10::List<Tensor> collected(const std::vector<Tensor>& pieces, const Layouts& layouts,
                            const std::vector<Tensor>& originals) {
  c10::List<Tensor> result;
  size_t at = 0;
  for (size_t k = 0; k < layouts.size(); ++k) {
    if (!layouts[k]) {
      result.push_back(pieces[at++]);
      continue;
    }
    const std::vector<Tensor> mine(pieces.begin() + static_cast<int64_t>(at),
                                   pieces.begin() + static_cast<int64_t>(at + layouts[k]->boxes.size()));
    at += mine.size();
    const c10::ScalarType dtype = mine.empty() ? originals[k].scalar_type() : mine.front().scalar_type();
    result.push_back(wrap_pieces(layouts[k], mine, dtype, originals[k].device()));
  }
  return result;
}

}  // namespace

void run_lists_by_pieces(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  const size_t base = stack.size() - info.arguments.size();
  const Layouts layouts = layouts_of(info, stack);
  size_t count = 0;
  for (const BoxLayoutPtr& layout : layouts) count += pieces_of(layout);
  Stack call(stack.begin() + static_cast<int64_t>(base), stack.end());
  std::vector<Tensor> originals;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    c10::IValue& value = call[i];
    if (info.arguments[i].kind == ArgumentKind::tensor_list) {
      if (!value.isTensorList() || value.toTensorVector().empty()) continue;
      const std::vector<Tensor> list = value.toTensorVector();
      if (originals.empty()) originals = list;
      value = expanded(info, list, layouts, info.arguments[i].written);
    } else if (info.arguments[i].kind == ArgumentKind::tensor) {
      if (!value.isTensor() || boxes_of(value.toTensor()) == nullptr) continue;
      throw_value_error(ErrorText(info.short_name(), "this argument cannot lie in pieces")
                            .fact("argument", op.schema().arguments()[i].name())
                            .help("a plain tensor"));
    } else {
      value = expanded_numbers(value, layouts);
    }
  }
  if (count > 0) {
    op.callBoxed(call);
  } else {
    call.assign(info.return_of.size(), c10::IValue(c10::List<Tensor>()));
  }
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < info.return_of.size(); ++i) {
    if (info.return_of[i] >= 0) {
      results.push_back(stack[base + static_cast<size_t>(info.return_of[i])]);
    } else {
      results.emplace_back(collected(call[i].toTensorVector(), layouts, originals));
    }
  }
  torch::jit::drop(stack, info.arguments.size());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

}  // namespace sherd::detail
