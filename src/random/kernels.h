#pragma once
// Launches of the CUDA kernels, without torch's headers: the compiler of kernels.cu sees none of them.

#include <cuda_runtime_api.h>

#include "random/draw.h"
#include "random/loops.h"

namespace sherd::detail {

inline constexpr int kMaxDims = 12;

/// Positions (positions.h) on the device. The last dim's places follow each other.
struct DevicePositions {
  int ndim = 0;
  // NOLINTBEGIN(modernize-avoid-c-arrays): passed to kernels by value
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims];
  int64_t first[kMaxDims];
  const int64_t* rows[kMaxDims];  // device memory; null where rows follow each other
  // NOLINTEND(modernize-avoid-c-arrays)
};

cudaError_t launch_fill(const Draw& draw, Stored type, void* out, const DevicePositions& positions,
                        cudaStream_t stream);
cudaError_t launch_drop(const Dropout& dropout, Stored type, const void* in, void* out, bool* mask,
                        const DevicePositions& positions, cudaStream_t stream);
/// `kind` is a CountKind.
cudaError_t launch_counts(int kind, const double* a, const double* b, double* out, const DevicePositions& positions,
                          uint64_t seed, uint64_t offset, cudaStream_t stream);

}  // namespace sherd::detail
