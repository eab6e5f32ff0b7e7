#include "random/device_fill.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <optional>

#include "random/kernels.h"

namespace sherd::detail {
namespace {

// Positions as kernels take them; `tables` keeps the rows of dims whose rows do not follow each other.
std::optional<DevicePositions> on_device(const Positions& positions, const at::Tensor& tensor,
                                         std::vector<at::Tensor>& tables) {
  if (!tensor.is_cuda()) return std::nullopt;
  std::vector<Positions::Dim> dims = positions.dims;
  if (dims.empty() || !dims.back().rows.empty()) dims.push_back({.size = 1, .stride = 1});
  if (dims.size() > kMaxDims) return std::nullopt;
  DevicePositions result;
  result.ndim = static_cast<int>(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    result.size[d] = dims[d].size;
    result.stride[d] = dims[d].stride;
    result.first[d] = dims[d].first;
    result.rows[d] = nullptr;
    if (dims[d].rows.empty()) continue;
    const at::Tensor rows = at::empty({dims[d].size}, at::kLong);
    std::memcpy(rows.mutable_data_ptr(), dims[d].rows.data(), rows.nbytes());
    tables.push_back(rows.to(tensor.device()));
    result.rows[d] = tables.back().const_data_ptr<int64_t>();
  }
  return result;
}

}  // namespace

bool fill_on_device(const at::Tensor& out, Stored type, const Positions& positions, const Draw& draw) {
  std::vector<at::Tensor> tables;
  const auto places = on_device(positions, out, tables);
  if (!places) return false;
  const c10::cuda::CUDAGuard device(out.device());
  C10_CUDA_CHECK(launch_fill(draw, type, out.mutable_data_ptr(), *places, c10::cuda::getCurrentCUDAStream()));
  return true;
}

bool drop_on_device(const at::Tensor& in, const at::Tensor& out, const at::Tensor& mask, Stored type,
                    const Positions& positions, const Dropout& dropout) {
  std::vector<at::Tensor> tables;
  const auto places = on_device(positions, in, tables);
  if (!places) return false;
  const c10::cuda::CUDAGuard device(in.device());
  C10_CUDA_CHECK(launch_drop(dropout, type, in.const_data_ptr(), out.mutable_data_ptr(),
                             mask.defined() ? mask.mutable_data_ptr<bool>() : nullptr, *places,
                             c10::cuda::getCurrentCUDAStream()));
  return true;
}

bool count_on_device(CountKind kind, const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                     const Positions& positions, uint64_t seed, uint64_t offset) {
  std::vector<at::Tensor> tables;
  const auto places = on_device(positions, a, tables);
  if (!places) return false;
  const c10::cuda::CUDAGuard device(a.device());
  C10_CUDA_CHECK(launch_counts(static_cast<int>(kind), a.const_data_ptr<double>(),
                               b.defined() ? b.const_data_ptr<double>() : nullptr, out.mutable_data_ptr<double>(),
                               *places, seed, offset, c10::cuda::getCurrentCUDAStream()));
  return true;
}

}  // namespace sherd::detail
