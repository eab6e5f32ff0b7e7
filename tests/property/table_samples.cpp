#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

template <class... Results>
Tensors listed(const std::tuple<Results...>& results) {
  return std::apply([](const auto&... result) { return Tensors{result...}; }, results);
}

void add_one(std::vector<OpSample>& all, const std::string& name, at::Tensor x,
             std::function<Tensors(const at::Tensor&)> f, bool differentiable = true) {
  all.push_back({name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }, 1e-8, differentiable});
}

// Each activation brings its backward with it. Shifted, so that no element lies at a corner.
void add_activations(std::vector<OpSample>& all) {
  add_one(all, "activations", ints({4, 5}) + 0.25, [](const at::Tensor& x) {
    return Tensors{torch::silu(x),
                   torch::tanh(x),
                   torch::elu(x),
                   torch::hardsigmoid(x),
                   torch::hardtanh(x),
                   torch::leaky_relu(x),
                   torch::logit(torch::sigmoid(x), 1e-6),
                   torch::mish(x),
                   torch::softplus(x),
                   torch::softshrink(x),
                   torch::sqrt(x * x + 1)};
  });
  all.push_back(binary(
      "soft_margin_loss", [](auto& x, auto& y) { return torch::soft_margin_loss(x, y.detach()); }, ints({4, 5}),
      ints({4, 5}, 1)));
  // Of different ndim: torch broadcasts from the right.
  for (const bool swapped : {false, true}) {
    const auto losses = [swapped](const Tensors& t) {
      const at::Tensor& x = t[swapped ? 1 : 0];
      const at::Tensor& y = t[swapped ? 0 : 1];
      return Tensors{torch::mse_loss(x, y), torch::mse_loss(x, y, at::Reduction::Sum),
                     torch::smooth_l1_loss(x, y, at::Reduction::Sum), torch::huber_loss(x, y, at::Reduction::Sum)};
    };
    const std::string name = swapped ? "losses_broadcast_input" : "losses_broadcast";
    all.push_back({name, {ints({4, 1}), ints({4}, 1)}, losses, 1e-8, false});
  }
  all.push_back({"binary_cross_entropy_weighted",
                 {ints({4, 3}), ints({4, 3}, 1), ints({3}, 2)},
                 [](const Tensors& t) {
                   const at::Tensor weight = t[2].detach();
                   const at::Tensor x = torch::sigmoid(t[0]);
                   const at::Tensor y = torch::sigmoid(t[1]);
                   return Tensors{torch::binary_cross_entropy(x, y, weight),
                                  torch::binary_cross_entropy(x, y, weight, at::Reduction::Sum)};
                 },
                 1e-8});
  add_one(all, "rrelu_as_it_serves", ints({4, 5}), [](const at::Tensor& x) {
    at::Tensor noise = torch::ones_like(x).detach();
    return Tensors{torch::rrelu_with_noise(x, noise, 0.25, 0.75, false)};
  });
  add_one(
      all, "rrelu_backward", ints({4, 5}),
      [](const at::Tensor& x) {
        return Tensors{
            torch::rrelu_with_noise_backward(x.detach(), x.detach() * 2, x.detach() + 5, 0.25, 0.75, true, false)};
      },
      false);
}

void add_more_pointwise(std::vector<OpSample>& all) {
  all.push_back(binary(
      "complex_parts", [](auto& x, auto& y) { return torch::view_as_real(torch::complex(x, y).conj_physical()); },
      ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "polar", [](auto& x, auto& y) { return torch::view_as_real(torch::polar(x * x, y)); }, ints({4, 5}),
      ints({4, 5}, 1)));
  all.push_back({"addcdiv", {ints({4, 5}), ints({4, 5}, 1), ints({5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addcdiv(t[0], t[1], t[2] * t[2] + 1, 2)};
                 }});
  all.push_back(binary(
      "quotients",
      [](auto& x, auto& y) {
        return torch::floor_divide(x.detach(), y.detach() * y.detach() + 1) + torch::float_power(x, 2) +
               torch::rsub(x, y, 2);
      },
      ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "true_divide", [](auto& x, auto& y) { return torch::true_divide(x, y * y + 1); }, ints({4, 5}), ints({4, 5}, 1)));
  add_one(
      all, "truths", ints({4, 5}),
      [](const at::Tensor& x) {
        return Tensors{torch::isinf(1 / x), torch::logical_not(x), torch::logical_xor(x, x > 1), torch::isin(x, 2)};
      },
      false);
  all.push_back(binary(
      "add_relu", [](auto& x, auto& y) { return torch::_add_relu(x, y); }, ints({4, 5}), ints({4, 5}, 1)));
  all.back().differentiable = false;
  add_one(
      all, "handed_on", ints({4, 5}),
      [](const at::Tensor& x) {
        const at::Tensor pairs = torch::complex(x, x);
        return Tensors{torch::positive(x),
                       torch::detach_copy(x),
                       torch::alias_copy(x),
                       torch::lift_fresh(x),
                       torch::lift_fresh_copy(x),
                       torch::_neg_view(x).resolve_neg(),
                       torch::view_as_real(torch::_conj_physical(pairs))};
      },
      false);
  // Parts of a sum have fractions that the sum has not.
  add_one(
      all, "into_whole_numbers", ints({4, 5}),
      [](const at::Tensor& given) {
        const at::Tensor x = given.detach();
        const at::Tensor whole = torch::zeros_like(x, torch::kLong);
        const Tensors each = {torch::zeros_like(x, torch::kInt)};
        torch::_foreach_copy_(each, {x});
        return Tensors{x.to(torch::kLong),
                       x.to(torch::kInt).to(torch::kBool),
                       x.to(torch::kBool),
                       x.sum(0, false, torch::kLong),
                       x.cumsum(1, torch::kLong),
                       whole.copy_(x),
                       each[0]};
      },
      false);
}

void add_products(std::vector<OpSample>& all) {
  all.push_back({"addbmm", {ints({4, 3}), ints({2, 4, 5}, 1), ints({2, 5, 3}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addbmm(t[0], t[1], t[2])};
                 }});
  all.push_back({"addr", {ints({4, 3}), ints({4}, 1), ints({3}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addr(t[0], t[1], t[2])};
                 }});
  all.push_back(binary(
      "vdot", [](auto& x, auto& y) { return torch::vdot(x, y); }, ints({5}), ints({5}, 1)));
  all.push_back({"addmm_activation",
                 {ints({3}), ints({4, 5}, 1), ints({5, 3}, 2)},
                 [](const Tensors& t) { return Tensors{torch::_addmm_activation(t[0], t[1], t[2])}; },
                 1e-9,
                 false});
}

void add_more_reductions(std::vector<OpSample>& all) {
  add_one(all, "smallest", ints({4, 5}), [](const at::Tensor& x) {
    return Tensors{x.amin(0), x.amin(1), x.median(), x.nanmedian()};
  });
  const at::Tensor apart = torch::arange(20, torch::kDouble).mul(7).remainder(23).view({4, 5});
  add_one(all, "nanmedian_rows", apart, [](const at::Tensor& x) { return listed(x.nanmedian(0)); });
  at::Tensor with_nan = apart.clone();
  with_nan[1][2] = NAN;
  add_one(all, "nansum", with_nan, [](const at::Tensor& x) { return Tensors{x.nansum(), x.nansum(0), x.nansum(1)}; });
  add_one(all, "std_mean", ints({4, 5}),
          [](const at::Tensor& x) { return listed(torch::std_mean(x, at::IntArrayRef{0}, 1, false)); });
  add_one(
      all, "powsum", ints({4, 5}),
      [](const at::Tensor& x) {
        return Tensors{torch::linalg__powsum(x, 2), torch::linalg__powsum(x, 3, at::IntArrayRef{0})};
      },
      false);
  add_one(
      all, "aminmax_rows", ints({4, 5}), [](const at::Tensor& x) { return listed(torch::_aminmax(x, 0)); }, false);
  add_one(all, "safe_softmax", ints({4, 5}), [](const at::Tensor& x) {
    return Tensors{torch::_safe_softmax(x, 0), torch::_safe_softmax(x, 1)};
  });
}

void add_norms(std::vector<OpSample>& all) {
  const auto normed = [&](const std::string& name, std::function<Tensors(const Tensors&, at::Tensor, at::Tensor)> f) {
    all.push_back(
        {name,
         {ints({4, 3, 5}), ints({3}, 1), ints({3}, 2)},
         [f = std::move(f)](const Tensors& t) { return f(t, t[1].detach() * 1, t[2].detach() * t[2].detach() + 5); },
         1e-8,
         false});
  };
  normed("batch_norm_serving", [](const Tensors& t, const at::Tensor& mean, const at::Tensor& var) {
    return Tensors{std::get<0>(torch::_native_batch_norm_legit_no_training(t[0], t[1], t[2], mean, var, 0.1, 1e-5)),
                   std::get<0>(torch::_batch_norm_no_update(t[0], t[1], t[2], mean, var, 0.1, 1e-5))};
  });
  normed("batch_norm_legit", [](const Tensors& t, at::Tensor mean, at::Tensor var) {
    const at::Tensor y = std::get<0>(torch::_native_batch_norm_legit(t[0], t[1], t[2], mean, var, true, 0.1, 1e-5));
    return Tensors{y, mean, var};
  });
  normed("batch_norm_with_update", [](const Tensors& t, at::Tensor mean, at::Tensor var) {
    const at::Tensor y = std::get<0>(torch::_batch_norm_with_update(t[0], t[1], t[2], mean, var, 0.1, 1e-5));
    return Tensors{y, mean, var};
  });
  normed("batch_norm_functional", [](const Tensors& t, const at::Tensor& mean, const at::Tensor& var) {
    const auto legit = torch::_native_batch_norm_legit_functional(t[0], t[1], t[2], mean, var, true, 0.1, 1e-5);
    const auto update = torch::_batch_norm_with_update_functional(t[0], t[1], t[2], mean, var, 0.1, 1e-5);
    return Tensors{std::get<0>(legit),  std::get<3>(legit),  std::get<4>(legit),
                   std::get<0>(update), std::get<4>(update), std::get<5>(update)};
  });
  all.push_back({"embedding_bag_serving",
                 {ints({7, 4}), index({6}, 7)},
                 [](const Tensors& t) {
                   const at::Tensor offsets = torch::tensor({0, 2, 3});
                   return Tensors{std::get<0>(torch::_embedding_bag_forward_only(t[0].detach(), t[1], offsets))};
                 },
                 1e-9,
                 false});
  all.push_back(
      {"attention_choice",
       {ints({2, 4, 3, 2}), ints({2, 4, 3, 2}, 1), ints({2, 4, 3, 2}, 2)},
       [](const Tensors& t) { return Tensors{torch::tensor(torch::_fused_sdp_choice(t[0], t[1], t[2]) >= 0)}; },
       1e-9,
       false});
}

// Copies of what a view would show.
void add_copied_views(std::vector<OpSample>& all) {
  add_one(all, "copied_views", ints({4, 6}), [](const at::Tensor& x) {
    return Tensors{torch::view_copy(x, {2, 2, 6}),
                   torch::expand_copy(x, {2, 4, 6}),
                   torch::permute_copy(x, {1, 0}),
                   torch::t_copy(x),
                   torch::transpose_copy(x, 0, 1),
                   torch::unsqueeze_copy(x, 1),
                   torch::squeeze_copy(x.unsqueeze(0)),
                   torch::select_copy(x, 0, 2),
                   torch::slice_copy(x, 0, 1, 3),
                   torch::narrow_copy(x, 1, 1, 3),
                   torch::diagonal_copy(x, 1),
                   torch::unfold_copy(x, 1, 2, 2),
                   torch::as_strided_copy(x, {2, 6}, {6, 1}, 6)};
  });
  add_one(all, "copied_parts", ints({4, 6}), [](const at::Tensor& x) {
    Tensors parts = torch::split_copy(x, 3, 0);
    for (const Tensors& more : {torch::split_with_sizes_copy(x, {1, 3}, 0), torch::unbind_copy(x, 0),
                                torch::unsafe_split(x, 3, 1), torch::unsafe_split_with_sizes(x, {2, 4}, 1)}) {
      parts.insert(parts.end(), more.begin(), more.end());
    }
    return parts;
  });
  add_one(
      all, "view_copy_as_long", ints({4, 6}),
      [](const at::Tensor& x) { return Tensors{torch::view_copy(x.detach(), torch::kLong)}; }, false);
  all.push_back({"unsafe_index", {ints({4, 5}), index({3}, 4), ints({3, 5}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::_unsafe_index(t[0], {t[1]}), torch::_unsafe_index_put(t[0], {t[1]}, t[2])};
                 }});
}

void add_more_matrices(std::vector<OpSample>& all) {
  const at::Tensor regular = ints({3, 2, 2}) + torch::eye(2, torch::kDouble) * 12;
  add_one(
      all, "eig", regular,
      [](const at::Tensor& x) {
        const auto largest = [](const at::Tensor& values) { return values.abs().amax(-1); };
        return Tensors{largest(torch::linalg_eigvals(x)), largest(torch::_linalg_eigvals(x)),
                       largest(std::get<0>(torch::linalg_eig(x)))};
      },
      false);
  add_one(
      all, "geqrf", regular, [](const at::Tensor& x) { return listed(torch::geqrf(x)); }, false);
  all.push_back({"ormqr", {regular, ints({3, 2}, 1) / 4, ints({3, 2, 4}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::ormqr(t[0], t[1], t[2])};
                 }});
  all.back().tolerance = 1e-7;
}

void add_more_spatial(std::vector<OpSample>& all) {
  const at::Tensor image = ints({2, 3, 3, 4});
  add_one(all, "upsample_1d_exact", ints({2, 3, 4}),
          [](const at::Tensor& x) { return Tensors{torch::_upsample_nearest_exact1d(x, {7})}; });
  add_one(all, "upsample_2d_aa", image, [](const at::Tensor& x) {
    return Tensors{torch::_upsample_bicubic2d_aa(x, {2, 2}, false)};
  });
#if __has_include(<ATen/ops/_upsample_lanczos2d_aa.h>)  // not in torch 2.11
  add_one(all, "upsample_2d_lanczos", image.to(torch::kFloat), [](const at::Tensor& x) {
    return Tensors{torch::_upsample_lanczos2d_aa(x, {2, 2}, false)};
  });
  all.back().tolerance = 1e-5;
#endif
  const at::Tensor block = ints({2, 3, 2, 4, 4});
  add_one(all, "block_3d", block, [](const at::Tensor& x) {
    return Tensors{torch::_upsample_nearest_exact3d(x, {3, 5, 5}), torch::reflection_pad3d(x, {1, 1, 0, 2, 1, 0})};
  });
  add_one(all, "replicate1d", ints({2, 3, 5}), [](const at::Tensor& x) {
    return Tensors{torch::replication_pad1d(x, {1, 2}), torch::channel_shuffle(x, 3)};
  });
  all.push_back(binary(
      "fractional_max_pool3d",
      [](auto& x, auto& s) {
        return std::get<0>(torch::fractional_max_pool3d(x, {1, 2, 2}, {1, 2, 2}, s.detach()));
      },
      block, ints({2, 3, 3}).abs() / 8));
  add_one(all, "max_unpool3d", torch::arange(192, torch::kDouble).mul(41).remainder(193).view({2, 3, 2, 4, 4}),
          [](const at::Tensor& x) {
            const auto [values, where] = torch::max_pool3d_with_indices(x, 2);
            return Tensors{torch::max_unpool3d(values, where, {2, 4, 4}, {2, 2, 2}, {0, 0, 0})};
          });
}

// Draws that leave nothing to chance.
void add_certain_draws(std::vector<OpSample>& all) {
  add_one(
      all, "certain_draws", ints({4, 5}),
      [](const at::Tensor& given) {
        const at::Tensor x = given.detach();
        const auto copy = [&] { return x * 1; };
        return Tensors{torch::bernoulli((x > 1) + 0.0),
                       copy().random_(3, 4),
                       copy().uniform_(2, 2),
                       at::normal(x, 0.0),
                       torch::randint_like(x, 1),
                       torch::multinomial(x * 0 + torch::eye(4, 5, torch::kDouble), 1),

                       torch::full_like(x, 2.5),
                       x.new_full({4, 5}, 3),
                       x.new_ones({4, 5})};
      },
      false);
  add_one(all, "dropout_of_none", ints({4, 5}), [](const at::Tensor& x) {
    const auto [kept, mask] = torch::native_dropout(x, 0.0, true);
    return Tensors{kept, torch::native_dropout_backward(x, x.detach() > 1, 2.0)};
  });
}

}  // namespace

// What the tables have and no other family reaches.
void add_rest_of_tables(std::vector<OpSample>& all) {
  add_activations(all);
  add_more_pointwise(all);
  add_products(all);
  add_more_reductions(all);
  add_norms(all);
  add_copied_views(all);
  add_more_matrices(all);
  add_more_spatial(all);
  add_certain_draws(all);
}

}  // namespace sherd::testing
