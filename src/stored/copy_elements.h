#pragma once
// Elements from one arrangement in memory into another.

#include <cstddef>
#include <cstdint>

#include "sherd/box.h"

namespace sherd::stored {

/// The strides, in elements, of a tensor in row-major order, as torch counts them.
Dims row_major(const Dims& sizes);
/// Whether elements with these strides lie in row-major order without gaps. Dims of one element have any stride.
bool is_row_major(const Dims& sizes, const Dims& strides);
/// Whether they lie without gaps in some order of the dims, each in its own place: a transposed matrix, channels last.
bool is_dense(const Dims& sizes, const Dims& strides);

/// Strides are in elements of `element_size` bytes (a power of two up to 16).
void copy_elements(const Dims& sizes, int64_t element_size, const std::byte* from, const Dims& from_strides,
                   std::byte* into, const Dims& into_strides);

}  // namespace sherd::stored
