#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

// Matrices that can be factored: integers with a large diagonal.
at::Tensor regular(at::IntArrayRef shape, int64_t salt = 0) {
  return ints(shape, salt) + torch::eye(shape.back(), torch::kDouble) * 12;
}

at::Tensor positive(at::IntArrayRef shape) {
  const at::Tensor x = ints(shape);
  return torch::matmul(x, x.mT()) + torch::eye(shape.back(), torch::kDouble) * 3;
}

}  // namespace

void add_linear_algebra(std::vector<OpSample>& all) {
  const auto on = [&](const std::string& name, at::Tensor x, std::function<Tensors(const at::Tensor&)> f) {
    all.push_back({name, {std::move(x)}, [f = std::move(f)](const Tensors& t) { return f(t[0]); }, 1e-7});
  };
  const auto on_two = [&](const std::string& name, at::Tensor x, at::Tensor y,
                          std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> f) {
    all.push_back(binary(name, std::move(f), std::move(x), std::move(y)));
    all.back().tolerance = 1e-7;
  };
  on("cholesky", positive({3, 2, 2}), [](auto& x) { return Tensors{torch::linalg_cholesky(x)}; });
  on("cholesky_legacy", positive({3, 2, 2}), [](auto& x) { return Tensors{torch::cholesky(x)}; });
  on("cholesky_inverse", positive({4, 2, 2}), [](auto& x) { return Tensors{torch::cholesky_inverse(x)}; });
  on("det", regular({4, 3, 3}), [](auto& x) { return Tensors{torch::det(x)}; });
  on("slogdet", regular({2, 2, 3, 3}), [](auto& x) { return Tensors{std::get<1>(torch::slogdet(x))}; });
  on("inverse", regular({4, 2, 2}), [](auto& x) { return Tensors{torch::inverse(x)}; });
  on("inverse_one", regular({4, 4}), [](auto& x) { return Tensors{torch::inverse(x)}; });
  on("matrix_exp", ints({3, 2, 2}) / 4, [](auto& x) { return Tensors{torch::matrix_exp(x)}; });
  on("qr", regular({3, 3, 3}), [](auto& x) {
    const auto [q, r] = torch::linalg_qr(x);
    return Tensors{q, r};
  });
  on("eigvalsh", positive({3, 2, 2}), [](auto& x) { return Tensors{torch::linalg_eigvalsh(x)}; });
  on("eigh", positive({4, 2, 2}), [](auto& x) {
    const auto [values, vectors] = torch::linalg_eigh(x);
    return Tensors{values, vectors * vectors};
  });
  on("svdvals", regular({3, 2, 2}), [](auto& x) { return Tensors{torch::linalg_svdvals(x)}; });
  on("lu", regular({3, 2, 2}), [](auto& x) {
    const auto [p, l, u] = torch::linalg_lu(x);
    return Tensors{p, l, u};
  });
  on("lu_factor", regular({3, 2, 2}), [](auto& x) {
    const auto [lu, pivots] = torch::linalg_lu_factor(x);
    const auto [p, l, u] = torch::lu_unpack(lu, pivots);
    return Tensors{l, u};
  });
  on("pinv", regular({3, 2, 2}), [](auto& x) { return Tensors{torch::linalg_pinv(x)}; });
  on_two("solve", regular({3, 2, 2}), ints({3, 2, 4}, 1), [](auto& a, auto& b) { return torch::linalg_solve(a, b); });
  on_two("solve_vectors", regular({3, 3, 3}), ints({3, 3}, 1),
         [](auto& a, auto& b) { return torch::linalg_solve(a, b); });
  on_two("solve_broadcast", regular({2, 2}), ints({3, 2, 4}, 1),
         [](auto& a, auto& b) { return torch::linalg_solve(a, b); });
  on_two("solve_right", regular({3, 2, 2}), ints({3, 4, 2}, 1),
         [](auto& a, auto& b) { return torch::linalg_solve(a, b, false); });
  on_two("solve_triangular", regular({3, 2, 2}), ints({3, 2, 4}, 1),
         [](auto& a, auto& b) { return torch::linalg_solve_triangular(a, b, true); });
  on_two("solve_triangular_right", regular({3, 2, 2}), ints({3, 4, 2}, 1),
         [](auto& a, auto& b) { return torch::linalg_solve_triangular(a, b, false, false); });
  on_two("triangular_solve", ints({3, 2, 4}, 1), regular({3, 2, 2}),
         [](auto& b, auto& a) { return std::get<0>(torch::triangular_solve(b, a)); });
  on_two("cholesky_solve", ints({3, 2, 4}, 1), positive({3, 2, 2}),
         [](auto& b, auto& a) { return torch::cholesky_solve(b, a); });
  on_two("householder", regular({3, 2, 2}), ints({3, 2}, 1) / 4,
         [](auto& a, auto& tau) { return torch::linalg_householder_product(a, tau); });
  on_two("cross", ints({4, 3}), ints({4, 3}, 1), [](auto& x, auto& y) { return torch::linalg_cross(x, y); });
  on_two("cross_first", ints({3, 4}), ints({3, 4}, 1), [](auto& x, auto& y) { return torch::linalg_cross(x, y, 0); });
  on_two("cdist", ints({2, 4, 3}), ints({2, 5, 3}, 1) + 0.5, [](auto& x, auto& y) { return torch::cdist(x, y, 3); });
  on_two("ldl", positive({3, 2, 2}), ints({3, 2, 4}, 1), [](auto& a, auto& b) {
    const auto [ld, pivots, info] = torch::linalg_ldl_factor_ex(a.detach());
    return torch::linalg_ldl_solve(ld, pivots, b);
  });
  all.back().differentiable = false;
  on_two("lu_solve", regular({3, 2, 2}), ints({3, 2, 4}, 1), [](auto& a, auto& b) {
    const auto [lu, pivots] = torch::linalg_lu_factor(a);
    return torch::linalg_lu_solve(lu, pivots, b);
  });
  const auto real = [](const at::Tensor& x) { return torch::view_as_real(x.resolve_conj()); };
  on("fft_rows", ints({4, 6}), [=](auto& x) { return Tensors{real(torch::fft_fft(x, std::nullopt, 1))}; });
  on("fft_columns", ints({4, 6}), [=](auto& x) { return Tensors{real(torch::fft_fft(x, std::nullopt, 0))}; });
  on("rfft", ints({4, 6}), [=](auto& x) { return Tensors{real(torch::fft_rfft(x))}; });
  on("irfft", ints({4, 5}), [=](auto& x) { return Tensors{torch::fft_irfft(torch::fft_rfft(x) * 2, 5)}; });
  on("hfft", ints({4, 5}), [=](auto& x) { return Tensors{torch::fft_hfft(x, 7), torch::fft_hfft(x, 6, 0)}; });
  on("ihfft", ints({4, 6}), [=](auto& x) {
    return Tensors{real(torch::fft_ihfft(x)), real(torch::fft_ihfft(x, 5, 0))};
  });
  on("fft2", ints({3, 4, 4}), [=](auto& x) { return Tensors{real(torch::fft_fft2(x))}; });
  on("view_as_complex", ints({4, 5, 2}),
     [=](auto& x) { return Tensors{real(torch::view_as_complex(x * 2) * torch::view_as_complex(x).conj())}; });
  on("conj_moved", ints({4, 5, 2}),
     [=](auto& x) { return Tensors{real(torch::view_as_complex(x * 1).conj().sum(0).conj().resolve_conj())}; });
}

}  // namespace sherd::testing
