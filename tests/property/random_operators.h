#pragma once
// The random operators, and how what they draw is compared.

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "sherd/box.h"

namespace sherd::testing {

struct Operator {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Generator& g)> draw;
  std::vector<c10::ScalarType> dtypes = {at::kFloat};
};

// Of a tensor of numbers in (0, 1), which they may write.
inline std::vector<Operator> operators() {
  const std::vector<c10::ScalarType> floats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  std::vector<c10::ScalarType> all = floats;
  all.insert(all.end(),
             {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool, at::kUInt16, at::kUInt32, at::kUInt64});
  std::vector<c10::ScalarType> complex = floats;
  complex.insert(complex.end(), {at::kComplexFloat, at::kComplexDouble});
  const auto in_place = [](auto f) {
    return [f](const at::Tensor& x, const at::Generator& g) {
      at::Tensor y = x.clone();
      f(y, g);
      return y;
    };
  };
  return {
      {"uniform_", in_place([](at::Tensor& x, auto& g) { x.uniform_(-1, 3, g); }), complex},
      {"normal_", in_place([](at::Tensor& x, auto& g) { x.normal_(1, 2, g); }), complex},
      {"log_normal_", in_place([](at::Tensor& x, auto& g) { x.log_normal_(0, 1, g); }), floats},
      {"exponential_", in_place([](at::Tensor& x, auto& g) { x.exponential_(2, g); }), floats},
      {"cauchy_", in_place([](at::Tensor& x, auto& g) { x.cauchy_(0, 1, g); }), floats},
      {"geometric_",
       in_place([](at::Tensor& x, auto& g) { x.geometric_(0.25, g); }),
       {at::kFloat, at::kLong, at::kInt}},
      {"random_", in_place([](at::Tensor& x, auto& g) { x.random_(g); }), all},
      {"random_.to", in_place([](at::Tensor& x, auto& g) { x.random_(2, g); }), all},
      {"random_.from", in_place([](at::Tensor& x, auto& g) { x.random_(-100, 100, g); }), {at::kFloat, at::kLong}},
      {"bernoulli_", in_place([](at::Tensor& x, auto& g) { x.bernoulli_(0.3, g); }), all},
      {"bernoulli_.Tensor", in_place([](at::Tensor& x, auto& g) { x.bernoulli_(x.clone(), g); })},
      {"bernoulli", [](const at::Tensor& x, auto& g) { return torch::bernoulli(x, g); }, {at::kFloat, at::kDouble}},
      {"bernoulli.p", [](const at::Tensor& x, auto& g) { return torch::bernoulli(x, 0.7, g); }},
      {"uniform", [](const at::Tensor& x, auto& g) { return torch::uniform(x, 0, 1, g); }},
      {"rand_like", [](const at::Tensor& x, auto& g) { return torch::rand_like(x, g); }, floats},
      {"randn_like", [](const at::Tensor& x, auto& g) { return torch::randn_like(x, g); }, floats},
      {"randint_like", [](const at::Tensor& x, auto& g) { return torch::randint_like(x, 10, g); }},
      {"randint_like.low", [](const at::Tensor& x, auto& g) { return torch::randint_like(x, -10, 10, g); }},
      {"normal(mean)", [](const at::Tensor& x, auto& g) { return at::normal(x, 2, g); }},
      {"normal(std)", [](const at::Tensor& x, auto& g) { return at::normal(2, x, g); }},
      {"normal(both)", [](const at::Tensor& x, auto& g) { return at::normal(x, x, g); }},
      {"poisson", [](const at::Tensor& x, auto& g) { return torch::poisson(x * 4, g); }, {at::kFloat, at::kDouble}},
      {"poisson of large rates", [](const at::Tensor& x, auto& g) { return torch::poisson(x * 1000 + 10, g); }},
      {"binomial", [](const at::Tensor& x, auto& g) { return torch::binomial(torch::full_like(x, 12), x, g); }},
      {"binomial of many",
       [](const at::Tensor& x, auto& g) { return torch::binomial(torch::full_like(x, 1000), x, g); }},
      {"rrelu", [](const at::Tensor& x, auto& g) { return torch::rrelu(x - 0.5, 0.1, 0.9, true, g); }},
  };
}

// Those that are given no generator, and draw from the current one.
inline std::vector<Operator> operators_without_generator() {
  const std::vector<c10::ScalarType> floats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  return {
      {"dropout", [](const at::Tensor& x, auto&) { return torch::dropout(x, 0.4, true); }, floats},
      {"native_dropout", [](const at::Tensor& x, auto&) { return std::get<0>(torch::native_dropout(x, 0.4, true)); },
       floats},
      {"its mask", [](const at::Tensor& x, auto&) { return std::get<1>(torch::native_dropout(x, 0.4, true)); }},
      {"alpha_dropout", [](const at::Tensor& x, auto&) { return torch::alpha_dropout(x, 0.4, true); }},
      {"feature_dropout",
       [](const at::Tensor& x, auto&) { return x.dim() < 2 ? x : torch::feature_dropout(x, 0.4, true); }},
      {"feature_alpha_dropout",
       [](const at::Tensor& x, auto&) { return x.dim() < 2 ? x : torch::feature_alpha_dropout(x, 0.4, true); }},
  };
}

inline at::Tensor numbers_in_unit(const Dims& shape, c10::ScalarType dtype) {
  const int64_t n = numel(shape);
  const at::Tensor x = (torch::arange(n, torch::kDouble) * 0.61803398875).remainder(0.98) + 0.01;
  return x.view(shape).to(dtype);
}

// Bits, so that NaN is NaN and -0 is not 0.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (a.numel() == 0) return true;
  return a.contiguous().view({-1}).view(at::kByte).equal(b.contiguous().view({-1}).view(at::kByte));
}

}  // namespace sherd::testing
