#include "checkpoint/read_tensor.h"

#include <ATen/ops/from_blob.h>

#include "checkpoint/dtypes.h"
#include "tensor/boxes_meta.h"

namespace sherd::detail {

bool goes_straight(const stored::StoredElements& chunk, const at::Tensor& into) {
  return into.is_cpu() && into.scalar_type() == to_torch(chunk.dtype) && !into.is_conj() && !into.is_neg();
}

void read_tensor(const stored::StoredElements& chunk, const Box& part, const at::Tensor& into, const Dims& at,
                 const std::string& reader, stored::LaterCrc& crc) {
  if (goes_straight(chunk, into)) {
    int64_t first = 0;
    for (size_t d = 0; d < at.size(); ++d) first += at[d] * into.strides()[d];
    stored::want_box(chunk, part, static_cast<std::byte*>(into.data_ptr()) + first * size_of(chunk.dtype),
                     into.strides().vec(), reader, crc);
    return;
  }
  const auto take = [&](const stored::ReadPart& read) {
    // from_blob wants memory that may be written; it is only read.
    auto* elements = const_cast<std::byte*>(read.elements);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    Box there{at, read.sizes};
    for (size_t d = 0; d < at.size(); ++d) there.offset[d] += read.at[d];
    part_of(into, there)
        .copy_(at::from_blob(elements, read.sizes, read.strides, at::TensorOptions(to_torch(chunk.dtype))));
  };
  stored::read_box(chunk, part, take, reader);
}

}  // namespace sherd::detail
