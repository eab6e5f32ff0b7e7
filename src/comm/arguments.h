#pragma once
// What must be right about one rank's own arguments before anything moves. Every check throws c10::ValueError.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "sherd/group.h"

namespace sherd::detail {

/// Dense, contiguous, and without a pending conjugation.
void check_tensor(const char* operation, const char* what, const at::Tensor& tensor);
/// One dtype, one device.
void check_pair(const char* operation, const at::Tensor& out, const at::Tensor& in);
void check_numel(const char* operation, const char* what, int64_t given, int64_t needed);
/// One size for each rank of the group, none negative.
void check_blocks(const char* operation, const Group& group, c10::IntArrayRef numels);
/// One of the world's ranks for each of a backend's members.
void check_members(const char* operation, const std::vector<int64_t>& ranks, int members);
/// A place in the group.
void check_place(const char* operation, const Group& group, int place);
/// 0 to kMaxTag.
void check_tag(const char* operation, int tag);

/// Tags above this one are the library's own.
inline constexpr int kMaxTag = (1 << 30) - 1;

}  // namespace sherd::detail
