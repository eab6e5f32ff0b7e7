#pragma once
// What the ranks of a group tell each other about boxes, and boxes read out of a DTensor.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "plan/transfer.h"
#include "sherd/box.h"
#include "sherd/group.h"

namespace sherd::detail {

std::string to_lines(const std::vector<Box>& boxes);
std::vector<Box> from_lines(std::string_view text);

/// The most elements that one rank has of these.
int64_t largest(const std::vector<plan::RankPart>& parts);

/// Throws c10::ValueError "<operation>: a box is not inside the tensor".
void check_inside(const char* operation, const Box& box, const Dims& shape);

/// Throws c10::ValueError "<operation>: the staging buffer must hold something".
void check_staging(const char* operation, int64_t staging_bytes, const char* help);

struct ReadParts {
  const char* operation = "read_boxes";
  int64_t staging_bytes = int64_t{64} << 20;
};
/// These boxes of an ordinary DTensor, where `wanted` are those that all ranks ask for. Below autograd.
std::vector<at::Tensor> read_parts(const at::Tensor& dtensor, const std::vector<Box>& boxes,
                                   const std::vector<plan::RankPart>& wanted, const ReadParts& options);

}  // namespace sherd::detail
