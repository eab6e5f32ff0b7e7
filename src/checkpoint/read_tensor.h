#pragma once
// A part of a chunk of a file, brought into a tensor.

#include <ATen/core/Tensor.h>

#include <string>

#include "stored/read_box.h"

namespace sherd::detail {

/// Whether the elements are in `into` as they are in the file.
bool goes_straight(const stored::StoredElements& chunk, const at::Tensor& into);

/// Fills the part of `into` at `at`, on any device, with these elements of the chunk, converted to its dtype: straight
/// into its memory where that can be, then at the latest in chunk.file->read_wanted(), as stored::want_box does. The
/// reader and `crc` stay until then.
void read_tensor(const stored::StoredElements& chunk, const Box& part, const at::Tensor& into, const Dims& at,
                 const std::string& reader, stored::LaterCrc& crc);

}  // namespace sherd::detail
