#pragma once
// Values that come to tensors which are there: each rank's part of them, however either is distributed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sherd::detail {

/// True for DTensors, ShardedTensors and LocalShardsWrappers.
bool is_in_parts(const at::Tensor& tensor);

/// The ranks that hold a DTensor or ShardedTensor together; none for others.
std::vector<int64_t> ranks_of(const at::Tensor& tensor);

/// All of a tensor as a plain one, on every rank that holds a part; undefined on the others. Communicates where the
/// tensor is distributed.
at::Tensor whole_of(const at::Tensor& tensor);

/// The same tensor on the CPU, in the same placements. Does not communicate.
at::Tensor on_cpu(const at::Tensor& tensor);

/// Makes a tensor on the meta device one with memory, without values; every handle to it sees the change. Others stay
/// as they are.
void give_memory(const at::Tensor& tensor, c10::Device device);

/// Whether this rank's part of a tensor is on the meta device.
bool has_no_memory(const at::Tensor& tensor);
/// A tensor like one on the meta device, with memory on the CPU and without values; a DTensor's mesh is one of the CPU
/// then. Undefined for ShardedTensors and LocalShardsWrappers.
at::Tensor with_memory(const at::Tensor& tensor);
/// Lets every handle to `tensor`, which is on the meta device, see that memory.
void take_memory(const at::Tensor& tensor, const at::Tensor& with_memory);

/// Copies a value into `target`, which has the same size. Communicates where the value is distributed, in another way.
void place(const at::Tensor& target, const at::Tensor& value);

}  // namespace sherd::detail
