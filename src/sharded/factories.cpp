#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include "sherd/sharded_tensor.h"

namespace sherd::sharded {
namespace {

// Made, filled, and only then a leaf with a gradient.
template <class Fill>
ShardedTensor filled(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options,
                     const Fill& fill) {
  ShardedTensor tensor(spec, size, options);
  const c10::NoGradGuard no_grad;
  fill(tensor);
  return tensor;
}

c10::ScalarType dtype_of(const at::Scalar& value) {
  return value.isFloatingPoint() ? TensorProperties().dtype
         : value.isComplex()     ? c10::toComplexType(TensorProperties().dtype)
                                 : value.type();
}

}  // namespace

ShardedTensor empty(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  return {spec, size, options};
}

ShardedTensor ones(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  return filled(spec, size, options, [](at::Tensor& t) { t.fill_(1); });
}

ShardedTensor zeros(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  return filled(spec, size, options, [](at::Tensor& t) { t.zero_(); });
}

ShardedTensor full(const ShardingSpec& spec, const Dims& size, const at::Scalar& value, ShardedTensorOptions options) {
  if (!options.dtype) options.dtype = dtype_of(value);
  return filled(spec, size, options, [&](at::Tensor& t) { t.fill_(value); });
}

ShardedTensor rand(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  return filled(spec, size, options, [](at::Tensor& t) { t.uniform_(); });
}

ShardedTensor randn(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  return filled(spec, size, options, [](at::Tensor& t) { t.normal_(); });
}

}  // namespace sherd::sharded
