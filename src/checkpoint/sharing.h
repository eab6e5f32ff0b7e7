#pragma once
// Whole tensors that rank 0 has, and the parts that the ranks have: from there to here and back. Every rank of the
// current world calls these. Ranks may differ in what they have and in who holds it together with them (a tensor of one
// row of a mesh is another tensor in the next row): they tell each other first.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace sherd::detail {

struct SharedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Fills the tensors from rank 0's values of the same names: whole ones there, meta tensors of the same size and dtype
/// on the other ranks. Each rank is sent its parts alone where its tensor is a DTensor or ShardedTensor.
void share_out(const std::vector<SharedTensor>& tensors, const std::map<std::string, at::Tensor>& values);

/// On rank 0 whole tensors on the CPU, one for each of its own; nothing on the others. Without a world, of this
/// process.
std::map<std::string, at::Tensor> collect(const std::vector<SharedTensor>& tensors);

}  // namespace sherd::detail
