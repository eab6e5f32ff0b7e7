#include "tensor/typed_kernels.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/detach_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zero_ops.h>
#include <ATen/ops/zeros_like_ops.h>

#include <map>

#include "tensor/typed_kernel.h"

namespace sherd::detail {

const uint64_t kPlainCpuKeys = at::empty({0}).key_set().raw_repr();
// The same for the other backend: there may be no GPU to make one on.
const uint64_t kPlainCudaKeys = (c10::DispatchKeySet(c10::DispatchKey::CUDA) |
                                 c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CUDABit) |
                                 c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CUDABit))
                                    .raw_repr();
const c10::DispatchKeySet kCpuKernels(c10::DispatchKey::CPU);
const c10::DispatchKeySet kCudaKernels(c10::DispatchKey::CUDA);

namespace {

template <class Op>
TypedKernel make(const c10::OperatorHandle& op) {
  using Kernel = TypedOpKernel<Op>;
  return {c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(op)),
          c10::impl::CppSignature::make<typename Op::schema>()};
}

using Maker = TypedKernel (*)(const c10::OperatorHandle& op);
using Makers = std::map<std::pair<std::string, std::string>, Maker>;

template <class... Ops>
Makers makers_of() {
  return {{{Ops::name, Ops::overload_name}, make<Ops>}...};
}

const Makers& makers() {
  namespace ops = at::_ops;
  static const Makers all = makers_of<
      // element by element
      ops::add_Tensor, ops::add_Scalar, ops::sub_Tensor, ops::mul_Tensor, ops::mul_Scalar, ops::div_Tensor,
      ops::div_Scalar, ops::neg, ops::exp, ops::log, ops::sqrt, ops::rsqrt, ops::pow_Tensor_Scalar, ops::relu,
      ops::threshold_backward, ops::gelu, ops::gelu_backward, ops::silu, ops::silu_backward, ops::sigmoid, ops::tanh,
      ops::tanh_backward, ops::where_self, ops::clone, ops::zeros_like, ops::ones_like,
      // in place
      ops::add__Tensor, ops::add__Scalar, ops::sub__Tensor, ops::mul__Tensor, ops::mul__Scalar, ops::div__Tensor,
      ops::div__Scalar, ops::relu_, ops::addcmul_, ops::addcdiv_, ops::lerp__Scalar, ops::copy_, ops::fill__Scalar,
      ops::zero_, ops::sqrt_,
      // products, sums, norms
      ops::mm, ops::bmm, ops::addmm, ops::sum, ops::sum_dim_IntList, ops::_softmax, ops::_softmax_backward_data,
      ops::_log_softmax, ops::_log_softmax_backward_data, ops::native_layer_norm, ops::native_layer_norm_backward,
      ops::cat,
      // views
      ops::view, ops::_unsafe_view, ops::t, ops::transpose_int, ops::permute, ops::unsqueeze, ops::expand,
      ops::slice_Tensor, ops::detach, ops::alias>();
  return all;
}

}  // namespace

std::optional<TypedKernel> typed_kernel_for(const c10::OperatorName& name) {
  const auto maker = makers().find({name.name, name.overload_name});
  if (maker == makers().end()) return std::nullopt;
  const auto op = c10::Dispatcher::singleton().findOp(name);
  return op ? std::optional(maker->second(*op)) : std::nullopt;
}

}  // namespace sherd::detail
