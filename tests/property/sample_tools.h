#pragma once
// For samples: inputs that are the same in every run, and short ways to write a call down.

#include "property/op_samples.h"

namespace sherd::testing {

using Tensors = std::vector<at::Tensor>;

/// Integers between -4 and 4.
inline at::Tensor ints(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(7).add(static_cast<double>(salt * 3)).remainder(9).sub(4).view(shape);
}

/// Rows of a tensor with `below` of them.
inline at::Tensor index(at::IntArrayRef shape, int64_t below) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kLong).mul(5).add(1).remainder(below).view(shape);
}

inline OpSample unary(const std::string& name, std::function<at::Tensor(const at::Tensor&)> f,
                      at::Tensor x = ints({4, 5})) {
  return {name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return Tensors{f(t[0])}; }};
}

inline OpSample binary(const std::string& name, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> f,
                       at::Tensor x, at::Tensor y) {
  return {name, {std::move(x), std::move(y)}, [f = std::move(f)](const Tensors& t) { return Tensors{f(t[0], t[1])}; }};
}

// Families of samples, each in a file of its own.
void add_linear_algebra(std::vector<OpSample>& all);
void add_spatial(std::vector<OpSample>& all);
void add_along_sharded(std::vector<OpSample>& all);
void add_rest_of_tables(std::vector<OpSample>& all);

}  // namespace sherd::testing
