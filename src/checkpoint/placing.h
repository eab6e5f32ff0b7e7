#pragma once
// Values that come to tensors which are there: each rank's part of them, however either is distributed.

#include <ATen/core/Tensor.h>

#include <string>

namespace sherd::detail {

/// All of a tensor as a plain one, on every rank that holds a part; undefined on the others. Communicates where the
/// tensor is distributed.
at::Tensor whole_of(const at::Tensor& tensor);

/// The same on rank 0 of the world alone, and on the CPU.
at::Tensor whole_on_rank0(const at::Tensor& tensor);

/// The same tensor on the CPU, in the same placements. Does not communicate.
at::Tensor on_cpu(const at::Tensor& tensor);

/// True for DTensors, ShardedTensors and LocalShardsWrappers.
bool is_in_parts(const at::Tensor& tensor);

/// Makes a tensor on the meta device one with memory, without values; every handle to it sees the change. Others stay
/// as they are.
void give_memory(const at::Tensor& tensor, c10::Device device);

enum class Source {
  here,   // every rank has the value, or its part of it
  rank0,  // rank 0 has the whole value; the others have a meta tensor of its size and dtype
};

/// Copies the value into `target`, which has the same size. Communicates where the value is distributed in another way,
/// and from rank 0.
void place(const at::Tensor& target, const at::Tensor& value, Source source);

}  // namespace sherd::detail
