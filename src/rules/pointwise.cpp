#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> pointwise_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"add sub",                                                        "*, * -> *     | linear 0+1"},
      {"rsub",                                                           "*, * -> *     | linear 0+1"},
      {"mul",                                                            "*, * -> *     | linear 0 1"},
      {"div.Tensor div.Scalar true_divide div.out",                      "*, * -> *     | linear 0"},
      {"neg clone alias detach _to_copy positive contiguous lift_fresh_copy lift_fresh detach_copy alias_copy",
                                                                         "* -> *        | linear 0"},
      {"where.self",                                                     "*, *, * -> *  | linear 1+2"},
      {"masked_fill",                                                    "*, *, * -> *"},
      {"copy",                                                           "*, * -> *     | linear 0+1"},
      {"threshold_backward",                                             "*, * -> *     | linear 0"},
      {"native_dropout",                                                 "* -> *, *"},
      {"native_dropout_backward",                                        "*, * -> *     | linear 0"},
      {"gelu_backward silu_backward tanh_backward sigmoid_backward leaky_relu_backward elu_backward hardtanh_backward "
       "hardswish_backward hardsigmoid_backward softplus_backward mish_backward logit_backward",
                                                                         "*, * -> *     | linear 0"},
      {"addcmul",                                                        "*, *, * -> *  | linear 0+1 0+2"},
      {"addcdiv",                                                        "*, *, * -> *  | linear 0+1"},
      {"lerp",                                                           "*, *, * -> *  | linear 0+1"},
      {"isnan isinf isfinite isclose float_power logical_and logical_or logical_xor logical_not",
                                                                         "*, * -> *"},
      {"relu gelu silu tanh exp sigmoid sqrt rsqrt abs log pow",         "*, * -> *"},
      {"fill",                                                           "*, * -> *"},
      {"zero",                                                           "* -> *        | linear 0"},
      {"_conj _neg_view conj_physical _conj_physical",                   "* -> *        | linear 0"},
      {"view_as_real",                                                   "* -> * c      | whole c, linear 0"},
      {"view_as_complex",                                                "* c -> *      | whole c, linear 0"},
      {"hardswish",                                                      "* -> *"},
      {"hardshrink_backward softshrink_backward",                        "*, * -> *     | linear 0"},
      {"_prelu_kernel",                                                  "*, * -> *"},
      {"_prelu_kernel_backward",                                         "*, *, * -> *, *"},
      {"complex",                                                        "*, * -> *     | linear 0+1, empty"},
      {"floor_divide polar normal rrelu_with_noise bernoulli",           "*, * -> *     | empty"},
      {"uniform log_normal exponential geometric cauchy random",         "* -> *        | empty"},
      {"rrelu_with_noise_backward",                                      "*, *, * -> *  | linear 0, empty"},
      {"_add_relu",                                                      "*, * -> *"},
      {"tril triu",                                                      "* r c -> * r c | whole r c, linear 0"},
      // A number that every rank must see alike; of two tensors' sizes, no values are needed.
      {"_local_scalar_dense",                                            "- ->"},
      {"is_same_size",                                                   "-, - ->       | shape 0 1"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
