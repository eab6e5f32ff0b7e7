#include <algorithm>

#include "rules/builder.h"
#include "rules/registry.h"

namespace sherd::rules {
namespace {

// _fft_c2c(self, dim, ...), _fft_r2c(self, dim, normalization, onesided) and _fft_c2r(self, dim, normalization,
// last_dim_size): transformed dims are whole. A real signal's last dim has half of its frequencies.
std::optional<BoundRule> fourier(const OpCall& call) {
  auto dims = call.list("dim");
  if (!dims) return std::nullopt;
  Builder builder(call);
  const Dims& shape = builder.shape();
  const auto ndim = static_cast<int64_t>(shape.size());
  BoundOperand& output = builder.output(shape.size());
  output.sizes = shape;
  for (int64_t& d : *dims) {
    d = wrapped(d, ndim);
    if (!in_range(d, ndim)) return std::nullopt;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (std::find(dims->begin(), dims->end(), static_cast<int64_t>(d)) != dims->end()) continue;
    builder.rule.inputs[0].dims[d] = output.dims[d] = {builder.factor(shape[d])};
  }
  if (!dims->empty()) {
    int64_t& last = output.sizes[static_cast<size_t>(dims->back())];
    if (call.integer("onesided", 0) != 0) last = last / 2 + 1;
    last = call.integer("last_dim_size", last);
  }
  return builder.linear();
}

}  // namespace

std::span<const FunctionRow> fourier_functions() {
  static constexpr FunctionRow kRows[] = {{"_fft_c2c _fft_r2c _fft_c2r", fourier, 1, 1, "dim"}};
  return kRows;
}

}  // namespace sherd::rules
