#include "rules/registry.h"

namespace sherd::rules {

std::span<const Row> reduction_rows() {
  // clang-format off
  static constexpr Row kRows[] = {
      {"sum",                       "* d -> *            | reduce d, d=dim, linear 0"},
      {"nansum",                    "* d -> *            | reduce d, d=dim"},
      {"mean",                      "* d -> *            | reduce(avg) d, d=dim, linear 0"},
      {"amax",                      "* d -> *            | reduce(max) d, d=dim"},
      {"amin",                      "* d -> *            | reduce(min) d, d=dim"},
      {"max.default",               "* d -> *            | reduce(max) d, d=dim"},
      {"min.default",               "* d -> *            | reduce(min) d, d=dim"},
      {"prod",                      "* d -> *            | reduce(product) d, d=dim"},
      {"all",                       "* d -> *            | reduce(min) d, d=dim"},
      {"any",                       "* d -> *            | reduce(max) d, d=dim"},
      {"linalg__powsum",            "* d -> *            | reduce d, d=dim"},
      {"count_nonzero.dim_IntList", "* d -> *            | reduce d, d=dim"},
      {"max.dim min.dim median.dim nanmedian.dim mode kthvalue aminmax _aminmax.dim", "* d -> *, * | whole d, d=dim"},
      {"argmax argmin logsumexp median.default nanmedian.default", "* d -> * | whole d, d=dim"},
      {"var std var.correction std.correction", "* d -> * | whole d, d=dim"},
      {"var_mean.correction std_mean.correction", "* d -> *, * | whole d, d=dim"},
      {"linalg_vector_norm norm",   "* d -> *            | whole d, d=dim"},
      {"cumsum",                    "* d -> * d          | whole d, d=dim, linear 0"},
      {"cumprod logcumsumexp",      "* d -> * d          | whole d, d=dim"},
      {"cummax cummin sort sort.stable topk", "* d -> * d, * d   | whole d, d=dim"},
      {"argsort",                   "* d -> * d          | whole d, d=dim"},
      {"_logcumsumexp",             "* d -> * d          | whole d, d=dim"},
      {"trace",                     "i j ->              | whole i j, linear 0"},
  };
  // clang-format on
  return kRows;
}

}  // namespace sherd::rules
