#include "tensor/random_factories.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

#include "comm/errors.h"
#include "plan/placement_lists.h"
#include "random/generator.h"
#include "random/parallel.h"
#include "random/permutation.h"
#include "random/positions.h"
#include "sherd/dtensor.h"
#include "sherd/random.h"
#include "tensor/meta.h"
#include "tensor/move.h"

namespace sherd {
namespace {

using at::Tensor;
using GeneratorGiven = std::optional<at::Generator>;

template <class Fill>
Tensor drawn(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options,
             Fill fill) {
  const bool requires_grad = options.requires_grad();
  Tensor result = empty(shape, mesh, std::move(placements), options.requires_grad(std::nullopt));
  fill(result);
  if (requires_grad) result.set_requires_grad(true);
  return result;
}

}  // namespace

namespace detail {

Tensor permutation_rows(int64_t n, PhiloxGenerator& generator, const Positions& positions) {
  const Permutation permutation(static_cast<uint64_t>(n), generator.current_seed(), generator.next_draw());
  Tensor rows = at::empty({positions.numel()}, at::kLong);
  auto* to = rows.mutable_data_ptr<int64_t>();
  for_ranges(rows, 1 << 10, [&](int64_t begin, int64_t end) {
    positions.for_each_stretch(begin, end, [&](int64_t local, int64_t global, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        to[local + i] = static_cast<int64_t>(permutation(static_cast<uint64_t>(global + i)));
      }
    });
  });
  return rows;
}

}  // namespace detail

Tensor rand(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options,
            const GeneratorGiven& generator) {
  return drawn(shape, mesh, std::move(placements), options, [&](Tensor& t) { t.uniform_(0, 1, generator); });
}

Tensor randn(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options,
             const GeneratorGiven& generator) {
  return normal(0, 1, shape, mesh, std::move(placements), options, generator);
}

Tensor normal(double mean, double deviation, at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements,
              at::TensorOptions options, const GeneratorGiven& generator) {
  return drawn(shape, mesh, std::move(placements), options, [&](Tensor& t) { t.normal_(mean, deviation, generator); });
}

Tensor randint(int64_t low, int64_t high, at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements,
               at::TensorOptions options, const GeneratorGiven& generator) {
  if (!options.has_dtype()) options = options.dtype(at::kLong);
  return drawn(shape, mesh, std::move(placements), options, [&](Tensor& t) { t.random_(low, high, generator); });
}

Tensor randperm(int64_t n, const DeviceMesh& mesh, Placements placements, at::TensorOptions options,
                const GeneratorGiven& given) {
  if (n < 0) {
    detail::throw_value_error(
        ErrorText("randperm", "a negative number of rows").fact("n", std::to_string(n)).help("n >= 0"));
  }
  if (!options.has_dtype()) options = options.dtype(at::kLong);
  return drawn({n}, mesh, std::move(placements), options, [&](const Tensor& result) {
    detail::PhiloxGenerator& generator = detail::generator_for("randperm", given, &mesh);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto& spec = *detail::meta_of(result)->spec;
    const Tensor& local = detail::meta_of(result)->local;
    const Placements whole = plan::without_partials(spec.placements);
    if (generator.mode() == RngMode::torch_exact) {
      const Tensor all = at::randperm(n, generator.of_torch(mesh.device()), local.options());
      if (!mesh.coordinate()) return;
      local.copy_(detail::move(all, mesh, spec.sizes, Placements(whole.size(), Replicate()), spec.placements));
      return;
    }
    detail::Positions positions = detail::whole_positions(0);
    if (mesh.coordinate()) positions = detail::positions_of({mesh.mesh(), spec.sizes, whole}, *mesh.coordinate());
    const Tensor rows = detail::permutation_rows(n, generator, positions);
    if (!mesh.coordinate()) return;
    local.copy_(detail::move(rows.to(local.options()), mesh, spec.sizes, whole, spec.placements));
  });
}

}  // namespace sherd
