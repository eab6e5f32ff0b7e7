// Operators on matrices: the last two dims are whole, the dims before them a batch, of which each matrix stands alone.

#include <algorithm>

#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

constexpr int kEmpty = -1;  // of an output that the arguments leave away: torch returns one without elements

// One matrix in, whose batch dims every output has before `trailing` dims of its own.
std::optional<BoundRule> batched(const OpCall& call, const std::vector<int>& trailing) {
  Builder builder(call);
  const Dims& shape = builder.shape();
  if (shape.size() < 2) return std::nullopt;
  std::vector<int16_t> batch;
  for (size_t d = 0; d + 2 < shape.size(); ++d) batch.push_back(builder.factor(shape[d]));
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    for (size_t d = 0; d < batch.size(); ++d) builder.rule.inputs[i].dims[d] = {batch[d]};
  }
  for (const int dims : trailing) {
    if (dims == kEmpty) {
      BoundOperand& output = builder.output(1);
      output.same_for = batch;
      output.sizes = {0};
      continue;
    }
    BoundOperand& output = builder.output(batch.size() + static_cast<size_t>(dims));
    for (size_t d = 0; d < batch.size(); ++d) output.dims[d] = {batch[d]};
  }
  builder.rule.takes_empty = true;
  return builder.done();
}

// _linalg_eigh(A, UPLO, compute_v) -> eigenvalues, eigenvectors.
std::optional<BoundRule> eigh(const OpCall& call) {
  return batched(call, {1, call.integer("compute_v", 1) != 0 ? 2 : kEmpty});
}

// _linalg_svd(A, full_matrices, compute_uv, driver) -> U, S, Vh.
std::optional<BoundRule> svd(const OpCall& call) {
  const int vectors = call.integer("compute_uv", 1) != 0 ? 2 : kEmpty;
  return batched(call, {vectors, 1, vectors});
}

// linalg_qr(A, mode) -> Q, R.
std::optional<BoundRule> qr(const OpCall& call) {
  const PlainArgument* mode = call.find("mode");
  const auto* text = mode == nullptr ? nullptr : std::get_if<std::string>(&mode->value);
  return batched(call, {text != nullptr && *text == "r" ? kEmpty : 2, 2});
}

// linalg_lu(A, pivot) -> P, L, U.
std::optional<BoundRule> lu(const OpCall& call) {
  return batched(call, {call.integer("pivot", 1) != 0 ? 2 : kEmpty, 2, 2});
}

// lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots) -> P, L, U.
std::optional<BoundRule> lu_unpack(const OpCall& call) {
  if (call.tensors[1].shape.size() + 1 != call.tensors[0].shape.size()) return std::nullopt;
  const int data = call.integer("unpack_data", 1) != 0 ? 2 : kEmpty;
  return batched(call, {call.integer("unpack_pivots", 1) != 0 ? 2 : kEmpty, data, data});
}

// _linalg_solve_ex(A, B, left, check_errors) -> result, LU, pivots, info. B is vectors where its shape is A's without
// the last dim, as torch decides it, else matrices, whose batch is broadcast against A's.
std::optional<BoundRule> solve(const OpCall& call) {
  Builder builder(call);
  const Dims& a = builder.shape(0);
  const Dims& b = builder.shape(1);
  if (a.size() < 2 || b.empty()) return std::nullopt;
  const bool vectors = b.size() == 1 || std::equal(a.begin(), a.end() - 1, b.begin(), b.end());
  const size_t trailing = vectors ? 1 : 2;
  const size_t ndim = std::max(a.size() - 2, b.size() - trailing);
  std::vector<DimFactors> batch(ndim);
  const auto meet = [&](const Dims& shape, size_t own) {
    for (size_t d = 1; d <= shape.size() - own; ++d) {
      const int64_t size = shape[shape.size() - own - d];
      DimFactors& factors = batch[ndim - d];
      if (size != 1 && factors.empty()) factors = {builder.factor(size)};
    }
  };
  const auto put = [&](BoundOperand& operand, const Dims& shape, size_t own) {
    for (size_t d = 1; d <= shape.size() - own; ++d) {
      const size_t at = shape.size() - own - d;
      if (shape[at] != 1) operand.dims[at] = batch[ndim - d];
    }
  };
  // A vector or a column of B is solved for alone.
  const size_t columns = b.size() - (call.integer("left", 1) != 0 ? 1 : 2);
  if (!vectors) builder.rule.inputs[1].dims[columns] = {builder.factor(b[columns])};
  meet(a, 2);
  meet(b, trailing);
  put(builder.rule.inputs[0], a, 2);
  put(builder.rule.inputs[1], b, trailing);
  // The factors of A have A's batch alone: where B is broadcast against it they are whole.
  for (const size_t own : {trailing, size_t{2}, size_t{1}, size_t{0}}) {
    const bool first = builder.rule.outputs.empty();
    const size_t dims = first ? ndim : a.size() - 2;
    BoundOperand& output = builder.output(dims + own);
    for (size_t d = 1; d <= dims; ++d) {
      if (first || a[a.size() - 2 - d] != 1) output.dims[dims - d] = batch[ndim - d];
    }
    if (first && !vectors) output.dims[ndim + columns + 2 - b.size()] = builder.rule.inputs[1].dims[columns];
    std::vector<DimFactors> all = batch;
    if (!vectors) all.push_back(builder.rule.inputs[1].dims[columns]);
    for (const DimFactors& factors : all) {
      const bool has = std::find(output.dims.begin(), output.dims.end(), factors) != output.dims.end();
      if (!factors.empty() && !has) output.same_for.push_back(factors.front());
    }
  }
  builder.rule.takes_empty = true;
  return builder.done();
}

}  // namespace

std::span<const FunctionRow> linear_algebra_functions() {
  static constexpr FunctionRow kRows[] = {
      {"_linalg_eigh", eigh, 1, 2}, {"_linalg_svd", svd, 1, 3},     {"linalg_qr", qr, 1, 2},
      {"linalg_lu", lu, 1, 3},      {"lu_unpack", lu_unpack, 2, 3}, {"_linalg_solve_ex", solve, 2, 4},
  };
  return kRows;
}

std::span<const Row> linear_algebra_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"cholesky cholesky_inverse linalg_matrix_exp",
                                   "* i j -> * i j                    | whole i j, empty"},
      {"linalg_cholesky_ex linalg_inv_ex",
                                   "* i j -> * i j, *                 | whole i j, empty"},
      {"_linalg_det",              "* i j -> *, * i j, * k            | whole i j k, empty"},
      {"_linalg_slogdet",          "* i j -> *, *, * i j, * k         | whole i j k, empty"},
      {"linalg_lu_factor_ex linalg_ldl_factor_ex",
                                   "* i j -> * i j, * k, *            | whole i j k, empty"},
      {"geqrf",                    "* i j -> * i j, * k               | whole i j k, empty"},
      {"linalg_eig",               "* i j -> * i, * i j               | whole i j, empty"},
      {"_linalg_eigvals",          "* i j -> * i                      | whole i j, empty"},
      {"linalg_pinv.atol_rtol_tensor",
                                   "* i j, *, * -> * j i              | whole i j, empty"},
      {"linalg_householder_product",
                                   "* m n, * k -> * m n               | whole m n k, empty"},
      {"ormqr",                    "* m n, * k, * m q -> * m q        | whole m n k, linear 2, empty, when left=1"},
      {"ormqr",                    "* m n, * k, * q m -> * q m        | whole m n k, linear 2, empty, when left=0"},
      {"cholesky_solve _cholesky_solve_helper",
                                   "* i k, * i j -> * i k             | whole i j, linear 0, empty"},
      {"linalg_solve_triangular",  "* i j, * i k -> * i k             | whole i j, linear 1, empty, when left=1"},
      {"linalg_solve_triangular",  "* i j, * k i -> * k i             | whole i j, linear 1, empty, when left=0"},
      {"triangular_solve",         "* i k, * i j -> * i k, * i j      | whole i j, same k, empty"},
      {"linalg_lu_solve",          "* i j, * i, * i k -> * i k        | whole i j, linear 2, empty, when left=1"},
      {"linalg_lu_solve",          "* i j, * i, * k i -> * k i        | whole i j, linear 2, empty, when left=0"},
      {"linalg_ldl_solve",         "* i j, * i, * i k -> * i k        | whole i j, linear 2, empty"},
      {"linalg_cross",             "* d, * d -> * d                   | whole d, d=dim, linear 0 1"},
      // Whether a factorisation failed is asked of all matrices on every rank: all throw, or none does.
      {"_linalg_check_errors",     "- ->"},
      {"_cdist_forward",           "* i k, * j k -> * i j             | whole k"},
      {"_cdist_backward",          "* i j, * i k, * j k, * i j -> * i k | whole k, reduce j, linear 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
