#pragma once
// A part of a chunk of a file, brought into a tensor.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "checkpoint/block_file.h"
#include "format/dtype.h"
#include "sherd/box.h"

namespace sherd::detail {

/// The elements of a chunk in a file.
struct StoredElements {
  BlockFile* file = nullptr;
  int64_t offset = 0;  // in bytes, of the first element
  format::DType dtype = format::DType::f32;
  Dims sizes;
  Dims strides;                      // in elements
  std::optional<uint32_t> crc = {};  // of all of them as they lie in the file, where that is known
};

/// Fills `into`, a tensor of part.size, with these elements of the chunk, converted to its dtype: straight into its
/// memory where that can be, else through at most 16 MiB beside it. Where the file has no digests and all of the chunk
/// is read, its CRC is compared.
void read_box(const StoredElements& chunk, const Box& part, const at::Tensor& into, bool verify,
              const std::string& reader);

}  // namespace sherd::detail
