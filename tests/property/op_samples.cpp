#include "property/op_samples.h"

namespace sherd::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

// Integers between -4 and 4, the same in every run.
at::Tensor ints(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(7).add(static_cast<double>(salt * 3)).remainder(9).sub(4).view(shape);
}

at::Tensor index(at::IntArrayRef shape, int64_t below) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kLong).mul(5).add(1).remainder(below).view(shape);
}

OpSample unary(const std::string& name, std::function<at::Tensor(const at::Tensor&)> f, at::Tensor x = ints({4, 5})) {
  return {name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return Tensors{f(t[0])}; }};
}

OpSample binary(const std::string& name, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> f,
                at::Tensor x, at::Tensor y) {
  return {name, {std::move(x), std::move(y)}, [f = std::move(f)](const Tensors& t) { return Tensors{f(t[0], t[1])}; }};
}

void add_pointwise(std::vector<OpSample>& all) {
  all.push_back(binary(
      "add", [](auto& x, auto& y) { return x + y; }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "add_broadcast", [](auto& x, auto& y) { return x + y; }, ints({4, 5}), ints({5}, 1)));
  all.push_back(binary(
      "sub_column", [](auto& x, auto& y) { return x - y; }, ints({4, 5}), ints({4, 1}, 1)));
  all.push_back(binary(
      "mul", [](auto& x, auto& y) { return x * y; }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(unary("add_scalar", [](auto& x) { return x + 2; }));
  all.push_back(unary("mul_scalar", [](auto& x) { return x * 3; }));
  all.push_back(unary("relu", [](auto& x) { return torch::relu(x); }));
  all.push_back(unary("exp", [](auto& x) { return torch::exp(x); }));
  all.push_back(unary("pow", [](auto& x) { return torch::pow(x, 2); }));
  all.push_back(unary(
      "neg_of_scalar_tensor", [](auto& x) { return -x; }, ints({})));
  all.push_back(unary(
      "gelu_empty", [](auto& x) { return torch::gelu(x); }, ints({0, 3})));
}

// In-place operators on something that is not a leaf.
void add_in_place(std::vector<OpSample>& all) {
  all.push_back(unary("mul_in_place", [](auto& x) { return (x * 1).mul_(3); }));
  all.push_back(binary(
      "add_in_place", [](auto& x, auto& y) { return (x * 1).add_(y, 2); }, ints({4, 5}), ints({5}, 1)));
  all.push_back(unary("relu_in_place", [](auto& x) { return (x * 1).relu_(); }));
  all.push_back(unary("fill_in_place", [](auto& x) { return (x * 1).fill_(2.5) + x; }));
  all.push_back(unary("zero_in_place", [](auto& x) { return (x * 1).zero_() + x; }));
  all.push_back(binary(
      "copy_in_place", [](auto& x, auto& y) { return (x * 1).copy_(y); }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(unary("transpose_in_place", [](auto& x) { return (x * 1).t_() * 2; }));
  all.push_back(unary("masked_fill", [](auto& x) { return x.masked_fill(x > 1, 7); }));
  all.push_back(
      unary("item", [](auto& x) { return torch::full({2}, x.sum().template item<double>()).to(torch::kDouble); }));
  all.push_back(unary("any_then_sum", [](auto& x) { return (x > 2).any(0).sum(); }));
  all.push_back(unary("ones_like", [](auto& x) { return torch::ones_like(x) + x; }));
}

void add_contractions(std::vector<OpSample>& all) {
  all.push_back(binary(
      "mm", [](auto& x, auto& y) { return torch::mm(x, y); }, ints({4, 5}), ints({5, 3}, 1)));
  all.push_back(binary(
      "bmm", [](auto& x, auto& y) { return torch::bmm(x, y); }, ints({2, 3, 4}), ints({2, 4, 5}, 1)));
  all.push_back({"addmm", {ints({3}), ints({4, 5}, 1), ints({5, 3}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addmm(t[0], t[1], t[2])};
                 }});
  all.push_back({"linear_3d", {ints({2, 3, 4}), ints({5, 4}, 1), ints({5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::linear(t[0], t[1], t[2])};
                 }});
}

void add_reductions(std::vector<OpSample>& all) {
  all.push_back(unary("sum", [](auto& x) { return x.sum(); }));
  all.push_back(unary("sum_dim", [](auto& x) { return x.sum(1); }));
  all.push_back(unary("sum_keepdim", [](auto& x) { return x.sum(0, true); }));
  all.push_back(unary("mean", [](auto& x) { return x.mean(); }));
  all.push_back(unary("amax", [](auto& x) { return x.amax(1); }));
  all.push_back(unary("softmax", [](auto& x) { return torch::softmax(x, 1); }));
  all.push_back(unary("log_softmax", [](auto& x) { return torch::log_softmax(x, 0); }));
}

void add_views(std::vector<OpSample>& all) {
  all.push_back(unary("transpose", [](auto& x) { return x.t(); }));
  all.push_back(unary(
      "permute",
      [](auto& x) {
        return x.permute({2, 0, 1});
      },
      ints({2, 3, 4})));
  all.push_back(unary(
      "flatten", [](auto& x) { return x.flatten(); }, ints({4, 3})));
  all.push_back(unary(
      "split_heads",
      [](auto& x) {
        return x.view({2, 3, 2, 4}).transpose(1, 2);
      },
      ints({2, 3, 8})));
  all.push_back(unary(
      "merge_first",
      [](auto& x) {
        return x.view({6, 4});
      },
      ints({2, 3, 4})));
  all.push_back(unary(
      "reshape_uneven",
      [](auto& x) {
        return x.reshape({4, 6});
      },
      ints({6, 4})));
  all.push_back(unary("slice", [](auto& x) { return x.slice(0, 1, 3); }));
  all.push_back(unary("select", [](auto& x) { return x.select(1, 2); }));
  all.push_back(unary("unsqueeze_squeeze", [](auto& x) { return x.unsqueeze(1).squeeze(); }));
  all.push_back(unary("expand", [](auto& x) { return x.expand({3, 4, 5}); }));
  all.push_back(binary(
      "cat",
      [](auto& x, auto& y) {
        return torch::cat({x, y}, 1);
      },
      ints({4, 5}), ints({4, 2}, 1)));
  all.push_back(binary(
      "stack",
      [](auto& x, auto& y) {
        return torch::stack({x, y}, 1);
      },
      ints({4, 5}), ints({4, 5}, 1)));
  all.push_back({"chunk", {ints({4, 6})}, [](const Tensors& t) { return t[0].chunk(3, 1); }});
}

void add_networks(std::vector<OpSample>& all) {
  all.push_back({"embedding", {ints({7, 4}), index({2, 3}, 7)}, [](const Tensors& t) {
                   return Tensors{torch::embedding(t[0], t[1])};
                 }});
  all.push_back({"layer_norm", {ints({4, 6}), ints({6}, 1), ints({6}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::layer_norm(t[0], {6}, t[1], t[2])};
                 }});
  all.push_back({"layer_norm_3d", {ints({2, 3, 4}), ints({4}, 1), ints({4}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::layer_norm(t[0], {4}, t[1], t[2])};
                 }});
  // The gradient that reaches the norm is Partial where `y` is cut, and mean and rstd are then cut themselves.
  all.push_back({"layer_norm_then_linear", {ints({2, 4, 4}), ints({4}, 1), ints({6, 4}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::linear(torch::layer_norm(t[0], {4}, t[1]), t[2])};
                 }});
  all.push_back({"attention", {ints({2, 4, 3, 2}), ints({2, 4, 3, 2}, 1), ints({2, 4, 3, 2}, 2)}, [](const Tensors& t) {
                   return Tensors{at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, true)};
                 }});
  all.push_back({"conv2d", {ints({4, 3, 5, 5}), ints({6, 3, 3, 3}, 1), ints({6}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::conv2d(t[0], t[1], t[2])};
                 }});
  all.push_back({"conv1d_grouped", {ints({3, 4, 6}), ints({4, 2, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::conv1d(t[0], t[1], at::Tensor(), at::IntArrayRef{1}, at::IntArrayRef{0},
                                                at::IntArrayRef{1}, 2)};
                 }});
  all.push_back(
      {"batch_norm",
       {ints({4, 3, 5}), ints({3}, 1), ints({3}, 2)},
       [](const Tensors& t) { return Tensors{torch::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false)}; },
       1e-8});
  all.push_back(unary(
      "max_pool2d", [](auto& x) { return torch::max_pool2d(x, 2); }, ints({2, 3, 4, 4})));
  all.push_back(binary(
      "mse_loss", [](auto& x, auto& y) { return torch::mse_loss(x, y); }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back({"cross_entropy_ignore", {ints({5, 4}), index({5}, 4)}, [](const Tensors& t) {
                   namespace F = torch::nn::functional;
                   return Tensors{F::cross_entropy(t[0], t[1], F::CrossEntropyFuncOptions().ignore_index(1))};
                 }});
  all.push_back({"cross_entropy", {ints({4, 5}), index({4}, 5)}, [](const Tensors& t) {
                   return Tensors{torch::nn::functional::cross_entropy(t[0], t[1])};
                 }});
}

}  // namespace

std::vector<OpSample> op_samples() {
  std::vector<OpSample> all;
  add_pointwise(all);
  add_in_place(all);
  add_contractions(all);
  add_reductions(all);
  add_views(all);
  add_networks(all);
  return all;
}

}  // namespace sherd::testing
