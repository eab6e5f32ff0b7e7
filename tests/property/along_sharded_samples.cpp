#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

// Both results.
template <class Pair>
Tensors both(const Pair& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

void add_scans(std::vector<OpSample>& all) {
  const auto on = [&](const std::string& name, at::Tensor x, std::function<Tensors(const at::Tensor&)> f) {
    all.push_back({name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }, 1e-8});
  };
  on("cumsum_vector", ints({7}), [](auto& x) { return Tensors{x.cumsum(-1)}; });
  on("cumsum_of_integers", index({5, 2}, 9), [](auto& x) { return Tensors{x.cumsum(0)}; });
  on("cumsum_to_int", ints({5, 2}), [](auto& x) { return Tensors{x.detach().cumsum(0, torch::kInt)}; });
  on("cumsum_one_row", ints({1, 3}), [](auto& x) { return Tensors{x.cumsum(0)}; });
  on("cumprod_rows", ints({5, 2}) / 3, [](auto& x) { return Tensors{x.cumprod(0)}; });
  on("logcumsumexp_rows", ints({5, 2}), [](auto& x) { return Tensors{x.logcumsumexp(0)}; });
  on("cummax_rows", ints({7, 2}), [](auto& x) { return both(x.cummax(0)); });
  on("cummin_rows", ints({7, 2}), [](auto& x) { return both(x.cummin(0)); });
  at::Tensor with_nan = ints({7});
  with_nan[2] = NAN;
  on("cummax_nan", with_nan, [](auto& x) { return both(x.detach().cummax(0)); });
}

void add_candidates(std::vector<OpSample>& all) {
  const auto on = [&](const std::string& name, at::Tensor x, std::function<Tensors(const at::Tensor&)> f) {
    all.push_back({name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }, 1e-8});
  };
  // Values come twice, so that it shows which of them is named.
  on("max_rows", ints({7, 3}).remainder(3), [](auto& x) { return both(x.max(0)); });
  on("min_rows_keepdim", ints({7, 3}).remainder(3), [](auto& x) { return both(x.min(0, true)); });
  on("max_of_booleans", index({5, 2}, 3) > 0, [](auto& x) { return both(x.max(0)); });
  on("argmax_rows", ints({7, 3}).remainder(3), [](auto& x) { return Tensors{x.argmax(0)}; });
  on("argmin_middle", ints({3, 5, 2}).remainder(3), [](auto& x) { return Tensors{x.argmin(1, true)}; });
  on("argmax_of_all", ints({4, 5}).remainder(3), [](auto& x) { return Tensors{x.argmax()}; });
  on("argmin_of_all_keepdim", ints({3, 5, 2}).remainder(4), [](auto& x) { return Tensors{x.argmin({}, true)}; });
  at::Tensor with_nan = ints({7});
  with_nan[3] = NAN;
  with_nan[5] = NAN;
  on("max_nan", with_nan, [](auto& x) {
    const at::Tensor y = x.detach();
    return Tensors{std::get<1>(y.max(0)), y.argmax(), y.argmin()};
  });
  const at::Tensor apart = torch::arange(24, torch::kDouble).mul(7).remainder(29).view({12, 2});
  on("topk_rows", apart, [](auto& x) { return both(x.topk(2, 0)); });
  on("topk_smallest", apart, [](auto& x) { return both(x.topk(1, 0, false)); });
  on("topk_many", apart, [](auto& x) { return both(x.topk(9, 0)); });
  on("kthvalue_rows", apart, [](auto& x) { return both(x.kthvalue(2, 0)); });
  on("kthvalue_late", apart, [](auto& x) { return both(x.kthvalue(10, 0, true)); });
  on("median_rows", apart, [](auto& x) { return both(x.median(0)); });
  on("mode_rows", ints({7, 3}).remainder(3), [](auto& x) { return both(x.mode(0)); });
  on("sort_rows", apart, [](auto& x) { return both(x.sort(0)); });
  const at::Tensor vector = torch::arange(400, torch::kDouble).mul(37).remainder(61).sub(20);
  on("sort_vector", vector, [](auto& x) { return both(x.sort(/*stable=*/true, 0, false)); });
  on("sort_vector_descending", vector, [](auto& x) { return both(x.sort(/*stable=*/true, 0, true)); });
  on("sort_equal_integers", torch::ones({300}, torch::kInt), [](auto& x) { return both(x.sort(true, 0, false)); });
  on("aminmax", ints({5, 2}), [](auto& x) { return both(torch::aminmax(x.detach())); });
  on("logsumexp_rows", ints({5, 2}), [](auto& x) {
    return Tensors{x.logsumexp(0), x.logsumexp(at::IntArrayRef({0, 1}), true)};
  });
  on("count_nonzero", ints({5, 2}), [](auto& x) {
    return Tensors{x.count_nonzero(), x.count_nonzero(std::vector<int64_t>{0})};
  });
}

void add_row_moves(std::vector<OpSample>& all) {
  all.push_back(unary("repeat", [](auto& x) { return x.repeat({2, 1, 3}); }));
  all.push_back(unary(
      "flip_vector", [](auto& x) { return x.flip({-1}); }, ints({7})));
  all.push_back(unary(
      "roll_rows", [](auto& x) { return x.roll({-2}, {0}); }, ints({5, 2})));
  all.push_back(unary("roll_both", [](auto& x) { return x.roll({13, 1}, {0, 1}); }));
  all.push_back(unary("rot90", [](auto& x) { return x.rot90(); }));
  all.push_back(binary(
      "cat_rows",
      [](auto& x, auto& y) {
        return torch::cat({x, y, x}, 0);
      },
      ints({4, 3}), ints({3, 3}, 1)));
  all.push_back(binary(
      "cat_of_two_types",
      [](auto& x, auto& i) {
        return torch::cat({x, i}, -1);
      },
      ints({2, 3}), index({2, 4}, 9)));
  all.push_back(unary("cat_with_plain", [](auto& x) {
    return torch::cat({ints({2, 5}), x, torch::empty({0}, torch::kDouble)}, 0);
  }));
}

// Rows named by index, fewer than there are.
void add_own_rows(std::vector<OpSample>& all) {
  all.push_back(binary(
      "index_select_few", [](auto& x, auto& i) { return x.index_select(0, i); }, ints({9, 2}), index({3}, 9)));
  all.push_back(binary(
      "gather_few", [](auto& x, auto& i) { return x.gather(0, i); }, ints({9, 3}), index({2, 3}, 9)));
  all.push_back(binary(
      "gather_few_of_batch", [](auto& x, auto& i) { return x.gather(1, i.unsqueeze(1)); }, ints({4, 9}),
      index({4}, 9)));
  all.push_back(unary(
      "pad_both_ends",
      [](auto& x) {
        return torch::constant_pad_nd(x, {1, 2, 4, 3}, 2.5);
      },
      ints({5, 3})));
  all.push_back(unary(
      "pad_and_cut",
      [](auto& x) {
        return torch::constant_pad_nd(x, {-1, 4}, 1) + torch::constant_pad_nd(x, {5, -2}, 1);
      },
      ints({2, 7})));
}

void add_halos(std::vector<OpSample>& all) {
  using Ints = std::vector<int64_t>;
  const auto convolved = [&](const std::string& name, at::Tensor x, at::Tensor w, Ints stride, Ints padding,
                             Ints dilation, int64_t groups) {
    all.push_back({"conv_" + name, {std::move(x), w, ints({w.size(0)}, 2)}, [=](const Tensors& t) {
                     return Tensors{torch::convolution(t[0], t[1], t[2], stride, padding, dilation, false,
                                                       Ints(stride.size(), 0), groups)};
                   }});
  };
  convolved("1d_padded", ints({2, 3, 7}), ints({4, 3, 3}, 1), {1}, {1}, {1}, 1);
  convolved("1d_strided", ints({2, 3, 9}), ints({4, 3, 3}, 1), {2}, {1}, {1}, 1);
  convolved("1d_dilated", ints({2, 3, 9}), ints({4, 3, 3}, 1), {1}, {2}, {2}, 1);
  convolved("1d_wide_padding", ints({1, 2, 4}), ints({2, 2, 2}, 1), {1}, {3}, {1}, 1);
  convolved("2d_padded", ints({2, 3, 5, 4}), ints({4, 3, 3, 3}, 1), {1, 1}, {1, 1}, {1, 1}, 1);
  convolved("2d_depthwise", ints({2, 4, 5, 4}), ints({4, 1, 3, 3}, 1), {1, 2}, {1, 1}, {1, 1}, 4);
  convolved("3d", ints({1, 2, 3, 4, 3}), ints({2, 2, 2, 3, 1}, 1), {1, 1, 1}, {1, 1, 0}, {1, 1, 1}, 1);
  const at::Tensor image = torch::arange(2 * 3 * 7 * 5, torch::kDouble).mul(17).remainder(211).view({2, 3, 7, 5});
  const auto pooled = [&](const std::string& name, at::Tensor x, std::function<Tensors(const at::Tensor&)> f) {
    all.push_back({"pool_" + name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }});
  };
  pooled("max_overlapping", image, [](auto& x) {
    return both(torch::max_pool2d_with_indices(x, {3, 3}, {2, 2}, {1, 1}));
  });
  pooled("max_dilated", image, [](auto& x) {
    return both(torch::max_pool2d_with_indices(x, {2, 2}, {1, 1}, {0, 0}, {2, 2}));
  });
  pooled("max_ceil", image, [](auto& x) {
    return both(torch::max_pool2d_with_indices(x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true));
  });
  pooled("avg_padded", image, [](auto& x) { return Tensors{torch::avg_pool2d(x, {3, 3}, {2, 1}, {1, 1})}; });
  pooled("avg_ceil_uncounted", image, [](auto& x) {
    return Tensors{torch::avg_pool2d(x, {3, 2}, {2, 2}, {1, 0}, true, false)};
  });
  pooled("max_3d", image.unsqueeze(1), [](auto& x) {
    return both(torch::max_pool3d_with_indices(x, {2, 3, 2}, {1, 2, 2}, {0, 1, 1}));
  });
  pooled("avg_3d", image.unsqueeze(1), [](auto& x) {
    return Tensors{torch::avg_pool3d(x, {2, 3, 2}, {1, 2, 2}, {0, 1, 1})};
  });
}

void add_statistics(std::vector<OpSample>& all) {
  all.push_back({"batch_norm_running",
                 {ints({4, 3, 5}), ints({3}, 1), ints({3}, 2)},
                 [](const Tensors& t) {
                   const at::Tensor mean = t[1].detach() * 1;
                   const at::Tensor variance = t[2].detach() * 1 + 5;
                   const at::Tensor y = torch::batch_norm(t[0], t[1], t[2], mean, variance, true, 0.1, 1e-5, false);
                   return Tensors{y, mean, variance};
                 },
                 1e-8});
  all.push_back(
      {"batch_norm_2d",
       {ints({3, 2, 4, 3}), ints({2}, 1)},
       [](const Tensors& t) { return Tensors{torch::batch_norm(t[0], t[1], {}, {}, {}, true, 0.1, 1e-5, false)}; },
       1e-8});
}

void add_found_rows(std::vector<OpSample>& all) {
  const auto on = [&](const std::string& name, at::Tensor x, std::function<Tensors(const at::Tensor&)> f) {
    all.push_back({name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }});
  };
  on("nonzero", ints({5, 3}), [](auto& x) { return Tensors{x.nonzero()}; });
  on("nonzero_none", torch::zeros({5, 3}, torch::kDouble), [](auto& x) { return Tensors{x.nonzero()}; });
  on("masked_select", ints({5, 3}), [](auto& x) { return Tensors{x.masked_select(x > 0)}; });
  on("masked_select_row", ints({5, 3}), [](auto& x) { return Tensors{x.masked_select(x.select(0, 0) > 0)}; });
  on("bincount", index({7}, 5), [](auto& x) { return Tensors{x.bincount(), x.bincount({}, 9)}; });
  all.push_back({"bincount_weighted", {index({7}, 5), ints({7})}, [](const Tensors& t) {
                   return Tensors{t[0].bincount(t[1].detach())};
                 }});
  on("histc", ints({5, 3}), [](auto& x) {
    return Tensors{x.detach().histc(4), x.detach().histc(5, -2, 3), x.detach().histc(4)};
  });
  on("unique", index({5, 3}, 6), [](auto& x) {
    const auto [values, inverse, counts] = torch::_unique2(x, true, true, true);
    return Tensors{values, inverse, counts};
  });
  on("unique_of_booleans", index({5, 3}, 3) > 0, [](auto& x) {
    const auto [values, inverse, counts] = torch::_unique2(x, true, true, false);
    return Tensors{values, inverse, counts};
  });
}

// Operators without a rule that torch writes in terms of others.
void add_composites(std::vector<OpSample>& all) {
  all.push_back(binary(
      "bce_with_logits", [](auto& x, auto& y) { return torch::binary_cross_entropy_with_logits(x, torch::sigmoid(y)); },
      ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "dist", [](auto& x, auto& y) { return torch::dist(x, y, 3); }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "allclose",
      [](auto& x, auto& y) {
        return torch::tensor({torch::allclose(x, y), torch::allclose(x, x * 1)});
      },
      ints({4, 5}), ints({4, 5}, 1)));
  all.back().differentiable = false;
  all.push_back(binary(
      "block_diag",
      [](auto& x, auto& y) {
        return torch::block_diag({x, y});
      },
      ints({2, 3}), ints({3, 1}, 1)));
  all.push_back({"masked_scatter", {ints({4, 3}), ints({12}, 1)}, [](const Tensors& t) {
                   return Tensors{t[0].masked_scatter(t[0] > 0, t[1])};
                 }});
}

}  // namespace

// Operators that work along a dim which may be sharded, exchanging less than the whole.
void add_along_sharded(std::vector<OpSample>& all) {
  add_scans(all);
  add_candidates(all);
  add_row_moves(all);
  add_own_rows(all);
  add_halos(all);
  add_statistics(all);
  add_found_rows(all);
  add_composites(all);
}

}  // namespace sherd::testing
