// from_local: the global shape of a tensor of which every rank brings a part.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <numeric>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/observer.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "tensor/boxes_meta.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/from_local_boxes.h"
#include "tensor/meta.h"
#include "tensor/take_values.h"
#include "tensor/xla.h"

namespace sherd {
namespace {

using at::Tensor;

// One small exchange of sizes along the axes that cut a dim: where the cuts are.
std::vector<int64_t> sizes_along(const DeviceMesh& mesh, const std::vector<int64_t>& axes, int64_t mine) {
  std::vector<int64_t> sizes = {mine};
  // Innermost axis first, so that the result is row-major in the axes.
  for (size_t i = axes.size(); i-- > 0;) {
    const Group group = mesh.group(axes[i]);
    const Tensor in = at::empty({static_cast<int64_t>(sizes.size())}, at::TensorOptions(c10::kLong));
    std::copy(sizes.begin(), sizes.end(), in.mutable_data_ptr<int64_t>());
    const Tensor local = in.to(mesh.device());
    const Tensor out = at::empty({group.size() * in.numel()}, local.options());
    all_gather(group, out, local).wait();
    const Tensor all = out.cpu();
    sizes.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
  }
  return sizes;
}

struct Found {
  Dims shape;
  Placements placements;
};

// The shape that the parts add up to. Parts that are not as torch.chunk cuts them become Ragged.
Found find_shape(const DeviceMesh& mesh, const Placements& placements, const Dims& local) {
  Found found{local, placements};
  for (size_t d = 0; d < local.size(); ++d) {
    std::vector<int64_t> axes;
    bool strided = false;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (sharded_dim(placements[axis]) != static_cast<int64_t>(d)) continue;
      axes.push_back(static_cast<int64_t>(axis));
      strided |= std::holds_alternative<StridedShard>(placements[axis]);
    }
    if (axes.empty()) continue;
    const std::vector<int64_t> sizes = sizes_along(mesh, axes, local[d]);
    found.shape[d] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    std::vector<int64_t> as_placed;
    const Layout layout{mesh.mesh(), found.shape, placements};
    Dims there = *mesh.coordinate();
    for (size_t i = 0; i < sizes.size(); ++i) {
      size_t rest = i;
      for (size_t k = axes.size(); k-- > 0;) {
        const auto n = static_cast<size_t>(mesh.size(axes[k]));
        there[static_cast<size_t>(axes[k])] = static_cast<int64_t>(rest % n);
        rest /= n;
      }
      Dims shape = local_shape(layout, there);
      as_placed.push_back(shape[d]);
    }
    if (as_placed == sizes) continue;
    if (strided) {
      detail::throw_value_error(
          ErrorText("from_local", "the parts do not fit a strided shard")
              .fact("sizes along the axis", to_string(sizes))
              .fact("a tensor of " + std::to_string(found.shape[d]) + " rows has", to_string(as_placed))
              .help("pass parts of these sizes, or sherd::Ragged"));
    }
    // Borders of the pieces; an axis further left sees every m-th of them.
    std::vector<int64_t> cuts = {0};
    for (const int64_t n : sizes) cuts.push_back(cuts.back() + n);
    size_t pieces = 1;
    for (const int64_t axis : axes) {
      pieces *= static_cast<size_t>(mesh.size(axis));
      const size_t step = sizes.size() / pieces;
      std::vector<int64_t> own;
      for (size_t i = 0; i <= pieces; ++i) own.push_back(cuts[i * step]);
      found.placements[static_cast<size_t>(axis)] = Ragged(static_cast<int64_t>(d), std::move(own));
    }
  }
  return found;
}

// Every rank says what it has; they must agree on all that the placements do not cut.
void check_ranks(const DeviceMesh& mesh, const Tensor& local, const Placements& placements) {
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const Group group = mesh.group(axis);
    Dims fixed = local.sizes().vec();
    const int64_t cut = sharded_dim(placements[static_cast<size_t>(axis)]);
    for (size_t other = 0; other < placements.size(); ++other) {
      if (const int64_t d = sharded_dim(placements[other]); d >= 0 && static_cast<int64_t>(other) >= axis) {
        fixed[static_cast<size_t>(d)] = -1;
      }
    }
    if (cut >= 0) fixed[static_cast<size_t>(cut)] = -1;
    const std::string mine = detail::dtype_name(local.scalar_type()) + to_string(fixed);
    const std::vector<std::string> all = all_gather_text(group, mine);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == all[0]) continue;
      detail::throw_value_error(
          ErrorText("from_local", "ranks bring parts that do not fit together")
              .fact(fmt::format("rank {}", group.ranks()[0]), all[0])
              .fact(fmt::format("rank {}", group.ranks()[i]), all[i])
              .fact("placements", to_string(placements) + " (-1: may differ)")
              .help("give every rank the same dtype and the same sizes of dims that are not cut"));
    }
  }
}

}  // namespace

Tensor from_local(const Tensor& local, const DeviceMesh& mesh, Placements placements, const FromLocalOptions& options) {
  constexpr const char* kOperation = "from_local";
  detail::require_dense(kOperation, local);
  detail::refuse_xla_mesh(kOperation, mesh);
  if (is_dtensor(local)) {
    detail::throw_value_error(ErrorText(kOperation, "the tensor is distributed already")
                                  .fact("tensor", to_string(local))
                                  .help("sherd::redistribute(tensor, placements)"));
  }
  if (detail::boxes_of(local) != nullptr) {
    return detail::from_local_boxes(local, mesh, std::move(placements), options);
  }
  if (options.stride && !options.shape) {
    detail::throw_value_error(ErrorText(kOperation, "strides need a shape")
                                  .fact("stride", to_string(*options.stride))
                                  .help("FromLocalOptions{.shape = {...}, .stride = {...}}"));
  }
  const Dims shape_for_check = options.shape.value_or(local.sizes().vec());
  Dims nominal = shape_for_check;
  placements = detail::as_c10_errors([&] {
    // Cuts are checked against the real shape below; here it may not be known yet.
    for (Placement& p : placements) {
      if (auto* ragged = std::get_if<Ragged>(&p); ragged != nullptr && !options.shape && !ragged->cuts.empty()) {
        const int64_t d = ragged->dim < 0 ? ragged->dim + static_cast<int64_t>(nominal.size()) : ragged->dim;
        if (d >= 0 && d < static_cast<int64_t>(nominal.size())) nominal[static_cast<size_t>(d)] = ragged->cuts.back();
      }
    }
    return checked_placements(kOperation, mesh.mesh(), nominal, std::move(placements));
  });
  const detail::CauseScope cause("from_local");
  // A rank outside the mesh has a part of nothing, whatever it brings.
  const Tensor given = local.to(mesh.device());
  const Tensor data = mesh.coordinate() ? given : at::empty({0}, given.options()).requires_grad_(given.requires_grad());
  Found found{options.shape.value_or(nominal), placements};
  if (mesh.coordinate()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (options.check) {
      check_ranks(mesh, data, placements);
      for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
        if (is_replicate(placements[static_cast<size_t>(axis)])) detail::take_values_of(0, data, mesh, axis);
      }
    }
    if (!options.shape) found = find_shape(mesh, placements, data.sizes().vec());
    const Dims expected = local_shape({mesh.mesh(), found.shape, found.placements}, *mesh.coordinate());
    if (data.sizes() != at::IntArrayRef(expected)) {
      detail::throw_value_error(
          ErrorText(kOperation, "the local tensor does not fit the shape")
              .fact("local", to_string(data.sizes().vec()) + fmt::format(" on rank {}", mesh.world().rank()))
              .fact("shape", to_string(found.shape) + " " + to_string(found.placements) + " on " + to_string(mesh))
              .fact("expected", to_string(expected))
              .help("leave the shape away: it is found from the parts"));
    }
  }
  // Row-major where the program does not say: the same on every rank, however its part lies in memory.
  const detail::SpecPtr spec = detail::intern_spec(mesh, found.placements, found.shape,
                                                   options.stride.value_or(detail::contiguous_strides(found.shape)));
  const Placements grad_placements = options.grad_placements
                                         ? detail::checked(kOperation, mesh, found.shape, *options.grad_placements)
                                         : detail::grad_placements_for(found.placements);
  if (!detail::fits_parts(*spec, grad_placements)) {
    detail::throw_value_error(
        ErrorText(kOperation, "the gradient's parts would be others than the tensor's")
            .fact("tensor", detail::describe(*spec, data.scalar_type()))
            .fact("grad_placements", to_string(grad_placements))
            .help("Partial() or Replicate() where the tensor is not cut, its own Shard where it is"));
  }
  return detail::from_local_edge(data, spec, grad_placements);
}

}  // namespace sherd
