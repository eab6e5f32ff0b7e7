#include "tensor/boxes_meta.h"

namespace sherd::detail {

at::Tensor wrap_pieces(BoxLayoutPtr layout, std::vector<at::Tensor> pieces, c10::ScalarType dtype, c10::Device device) {
  const Dims sizes = layout->size;
  return wrap_meta(c10::make_intrusive<BoxesMeta>(std::move(layout), std::move(pieces)), sizes,
                   contiguous_strides(sizes), c10::scalarTypeToTypeMeta(dtype), device);
}

at::Tensor part_of(const at::Tensor& whole, const Box& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.size.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return part;
}

at::Tensor cut_into(const BoxLayoutPtr& layout, const at::Tensor& whole) {
  std::vector<at::Tensor> pieces;
  for (const Box& box : layout->boxes) pieces.push_back(part_of(whole, box));
  return wrap_pieces(layout, std::move(pieces), whole.scalar_type(), whole.device());
}

bool has_boxes(const OpInfo& info, const torch::jit::Stack& stack) {
  const auto in_boxes = [](const c10::IValue& value) {
    if (!value.isTensor()) return false;
    const DTensorMeta* meta = meta_of(value.toTensor());
    return meta != nullptr ? meta->spec->boxes != nullptr : boxes_of(value.toTensor()) != nullptr;
  };
  for (size_t i = stack.size() - info.arguments.size(); i < stack.size(); ++i) {
    if (in_boxes(stack[i])) return true;
    if (!stack[i].isList()) continue;
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (in_boxes(element)) return true;
      if (!element.isTensor() && !element.isNone()) break;  // a list of something else
    }
  }
  return false;
}

}  // namespace sherd::detail
