#include "random/counts.h"

#include <ATen/ops/empty_like.h>

#include "random/count_numbers.h"
#include "random/device_fill.h"
#include "random/parallel.h"

namespace sherd::detail {
namespace {

constexpr int64_t kGrain = 1 << 12;

}  // namespace

at::Tensor draw_counts(CountKind kind, const at::Tensor& a, const at::Tensor& b, const Positions& positions,
                       uint64_t seed, uint64_t offset) {
  at::Tensor out = at::empty_like(a);
  if (!a.is_cpu()) {
    if (count_on_device(kind, a, b, out, positions, seed, offset)) return out;
    return out.copy_(draw_counts(kind, a.cpu(), b.defined() ? b.cpu() : b, positions, seed, offset));
  }
  const double* first = a.const_data_ptr<double>();
  const double* second = kind == CountKind::binomial ? b.const_data_ptr<double>() : nullptr;
  auto* to = out.mutable_data_ptr<double>();
  const auto stretch = [&](int64_t at, int64_t global, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto place = static_cast<uint64_t>(global + i);
      const int64_t here = at + i;
      switch (kind) {
        case CountKind::bernoulli:
          // As a bernoulli draw of one probability: word `place`.
          to[here] = philox(seed, offset, place / 4).words[place % 4] < threshold(first[here]) ? 1 : 0;
          break;
        case CountKind::poisson:
          to[here] = poisson_count(first[here], {seed, offset, place});
          break;
        case CountKind::binomial:
          to[here] = binomial_count(first[here], second[here], {seed, offset, place});
          break;
      }
    }
  };
  for_ranges(out, kGrain, [&](int64_t begin, int64_t end) { positions.for_each_stretch(begin, end, stretch); });
  return out;
}

}  // namespace sherd::detail
