#include "sherd/tensor_properties.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>

#include "comm/errors.h"
#include "tensor/meta.h"

namespace sherd {
namespace {

using c10::MemoryFormat;

constexpr std::pair<MemoryFormat, int> kFormats[] = {
    {MemoryFormat::Contiguous, 0}, {MemoryFormat::ChannelsLast, 1}, {MemoryFormat::Preserve, 2}};

}  // namespace

TensorProperties::TensorProperties() : dtype(c10::get_default_dtype_as_scalartype()) {}

TensorProperties TensorProperties::create_from_tensor(const at::Tensor& tensor) {
  TensorProperties properties(tensor.scalar_type());
  properties.layout = tensor.layout();
  properties.requires_grad = tensor.requires_grad();
  const bool plain = !detail::has_meta(tensor.unsafeGetTensorImpl());
  properties.pin_memory = plain && tensor.device().is_cpu() && tensor.is_pinned();
  return properties;
}

TensorProperties::Tuple TensorProperties::to_tuple() const {
  for (const auto& [format, number] : kFormats) {
    if (format == memory_format) return {dtype, layout, requires_grad, number, pin_memory};
  }
  detail::throw_value_error(ErrorText("TensorProperties", "this memory format cannot be written")
                                .fact("memory_format", c10::str(memory_format))
                                .help("contiguous, channels_last or preserve"));
}

TensorProperties TensorProperties::from_tuple(const Tuple& tuple) {
  const auto& [dtype, layout, requires_grad, number, pin_memory] = tuple;
  for (const auto& [format, known] : kFormats) {
    if (known != number) continue;
    TensorProperties properties(dtype);
    properties.layout = layout;
    properties.requires_grad = requires_grad;
    properties.memory_format = format;
    properties.pin_memory = pin_memory;
    return properties;
  }
  detail::throw_value_error(ErrorText("TensorProperties", "unknown memory format")
                                .fact("number", std::to_string(number))
                                .help("0 contiguous, 1 channels_last, 2 preserve"));
}

}  // namespace sherd
