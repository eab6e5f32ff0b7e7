#pragma once
// New memory for large results. The kernel gives memory when it is first touched, page by page: for pages of 4 KiB that
// takes longer than most moves of data. In pages of 2 MiB it takes a fifth of the time, and later accesses find their
// pages sooner.

#include <ATen/core/Tensor.h>

namespace sherd::detail {

/// at::empty. Where it is on the CPU and has 2 MiB or more, its memory is asked for in huge pages.
at::Tensor empty_large(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Asks for huge pages for the memory of a tensor that nobody has written to yet. It is a wish, which the kernel need
/// not grant (/sys/kernel/mm/transparent_hugepage/enabled): nothing fails. Nothing happens for less than 2 MiB, memory
/// that is not in one piece, or tensors on other devices.
void ask_for_huge_pages(const at::Tensor& tensor);

}  // namespace sherd::detail
