#include "sherd/dtensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/call.h"
#include "comm/errors.h"
#include "rules/registry.h"
#include "sherd/collectives.h"
#include "tensor/boxes_meta.h"
#include "tensor/cause_of.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/meta.h"
#include "tensor/move.h"
#include "tensor/runs.h"
#include "tensor/xla.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::checked;
using detail::meta_of;

std::string tensor_text(const Tensor& tensor) {
  return detail::dtype_name(tensor.scalar_type()) + to_string(tensor.sizes().vec());
}

// The parts that the ranks along `axis` hold, once the axes before it are applied. `whole`: what the source has;
// nothing elsewhere.
Tensor scatter_axis(const Tensor& whole, const DeviceMesh& mesh, const Layout& before, const Layout& after,
                    int64_t axis, int source, const at::TensorOptions& options) {
  const Dims& here = *mesh.coordinate();
  const Group group = mesh.group(axis);
  const plan::RunGrid held = plan::grid_of(before, here);
  Tensor in;
  std::vector<int64_t> numels;
  if (group.rank() == source) {
    in = at::empty({whole.numel()}, options);
    int64_t at = 0;
    for (int64_t i = 0; i < mesh.size(axis); ++i) {
      Dims there = here;
      there[static_cast<size_t>(axis)] = i;
      const plan::RunGrid rows = plan::grid_of(after, there);
      const int64_t count = plan::numel(rows);
      if (count > 0) in.narrow(0, at, count).view(plan::shape_of(rows)).copy_(detail::take(whole, held, rows));
      numels.push_back(count);
      at += count;
    }
  }
  Tensor out = at::empty(local_shape(after, here), options);
  scatter(group, out, in, source, numels).wait();
  return out;
}

// What one rank has, cut along the axes that shard and then copied along the others, so that nobody gets more than it
// keeps. A line of ranks takes part once the axes to come have their source in it.
Tensor spread(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements, int source) {
  const Dims& here = *mesh.coordinate();
  const auto cuts = [&](int64_t axis) { return is_shard(placements[static_cast<size_t>(axis)]); };
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.size(axis) > 1) axes.push_back(axis);
  }
  std::stable_partition(axes.begin(), axes.end(), cuts);
  const auto at_source = [&](auto from) {
    return std::all_of(from, axes.end(), [&](int64_t axis) { return here[static_cast<size_t>(axis)] == source; });
  };

  const detail::CauseScope cause("distribute_tensor");
  Layout layout{mesh.mesh(), tensor.sizes().vec(), Placements(placements.size(), Replicate())};
  const at::TensorOptions options = tensor.options();
  Tensor local = at_source(axes.begin()) ? tensor.contiguous() : Tensor();
  for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
    const bool takes_part = at_source(axis + 1);
    if (cuts(*axis)) {
      Layout after = layout;
      after.placements[static_cast<size_t>(*axis)] = placements[static_cast<size_t>(*axis)];
      if (takes_part) local = scatter_axis(local, mesh, layout, after, *axis, source, options);
      layout = after;
    } else if (takes_part) {
      if (!local.defined()) local = at::empty(local_shape(layout, here), options);
      if (local.is_alias_of(tensor)) local = local.clone();
      broadcast(mesh.group(*axis), local, source).wait();
    }
  }
  return detail::move(local, mesh, layout.shape, layout.placements, placements);
}

Tensor local_part(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                  const DistributeOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!mesh.coordinate()) return at::empty({0}, tensor.options().device(mesh.device()));
  const Tensor data = tensor.detach().to(mesh.device());
  const bool talks = options.source && mesh.size() > 1 && !data.is_meta();
  Tensor local =
      talks ? spread(data, mesh, placements, *options.source)
            : detail::move(data, mesh, data.sizes().vec(), Placements(placements.size(), Replicate()), placements);
  // A leaf of its own: it shares no memory with the tensor it was made of, unless nothing was cut. Rows of that tensor
  // would be contiguous as they are, and keep all of it in memory.
  if (local.is_same(data)) return local;
  return local.is_alias_of(data) ? local.clone(at::MemoryFormat::Contiguous) : local.contiguous();
}

template <class Make>
Tensor make_local(const char* operation, at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements,
                  at::TensorOptions options, Make&& make) {
  const Dims sizes = shape.vec();
  placements = checked(operation, mesh, sizes, std::move(placements));
  const Layout layout{mesh.mesh(), sizes, placements};
  const bool requires_grad = options.requires_grad();
  options = options.device(mesh.device()).requires_grad(std::nullopt);
  const Dims local_sizes = mesh.coordinate() ? local_shape(layout, *mesh.coordinate()) : Dims{0};
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensor local = make(local_sizes, options);
  // A Partial's parts reduce to the value: the first rank has it.
  Placements whole = placements;
  for (Placement& p : whole) {
    if (is_partial(p)) p = Replicate();
  }
  local = detail::move(local, mesh, sizes, whole, placements);
  Tensor result =
      detail::wrap(detail::intern_spec(mesh, placements, sizes, detail::contiguous_strides(sizes)), std::move(local));
  if (requires_grad) result.set_requires_grad(true);
  return result;
}

}  // namespace

bool is_dtensor(const Tensor& tensor) { return meta_of(tensor) != nullptr; }
DeviceMesh mesh_of(const Tensor& tensor) { return detail::require_dtensor("mesh_of", tensor).spec->mesh; }
const Placements& placements_of(const Tensor& tensor) {
  return detail::require_dtensor("placements_of", tensor).spec->placements;
}
Layout layout_of(const Tensor& tensor) {
  const auto& spec = detail::require_dtensor("layout_of", tensor).spec;
  if (!spec->boxes) return spec->layout();
  detail::throw_value_error(ErrorText("layout_of", "the tensor lies in boxes that its ranks chose")
                                .fact("tensor", to_string(tensor))
                                .help("sherd::checkpointable(tensor)->chunk_list() for this rank's boxes"));
}

Tensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                         const DistributeOptions& options) {
  constexpr const char* kOperation = "distribute_tensor";
  detail::require_dense(kOperation, tensor);
  if (detail::is_xla(mesh)) {
    Tensor marked = detail::mark_for_xla(kOperation, tensor, mesh, placements);
    if (tensor.requires_grad() && !marked.requires_grad()) marked.set_requires_grad(true);
    return marked;
  }
  placements = checked(kOperation, mesh, tensor.sizes().vec(), std::move(placements));
  if (const auto* meta = meta_of(tensor)) {
    if (meta->spec->mesh == mesh && meta->spec->placements == placements && !meta->spec->boxes) return tensor;
    detail::throw_value_error(ErrorText(kOperation, "the tensor is distributed already, otherwise")
                                  .fact("it is", to_string(tensor))
                                  .fact("asked", to_string(placements) + " on " + to_string(mesh))
                                  .help("sherd::redistribute(tensor, placements)"));
  }
  if (detail::boxes_of(tensor) != nullptr) {
    detail::throw_value_error(
        ErrorText(kOperation, "the tensor lies in pieces already")
            .fact("tensor", tensor_text(tensor))
            .help("sherd::from_local(wrapper, mesh, placements) or sherd::sharded::to_dtensor(tensor)"));
  }
  if (!tensor.is_leaf()) {
    detail::throw_value_error(ErrorText(kOperation, "the tensor is not a leaf: its history would be lost")
                                  .fact("tensor", tensor_text(tensor))
                                  .help("distribute the leaf, or use sherd::from_local, which is differentiable"));
  }
  for (int64_t axis = 0; axis < mesh.ndim() && options.source; ++axis) {
    const bool there = *options.source >= 0 && (*options.source < mesh.size(axis) || mesh.size(axis) == 1);
    if (there) continue;
    detail::throw_value_error(ErrorText(kOperation, "there is no such source")
                                  .fact("source", std::to_string(*options.source))
                                  .fact("mesh", to_string(mesh))
                                  .help("DistributeOptions{.source = 0}: a place along each axis, from 0"));
  }
  const Tensor local = local_part(tensor, mesh, placements, options);
  // Strides must be the same on every rank, and a part does not tell them where a dim of it is 0 or 1: they are those
  // of the tensor where all ranks have it, and row-major where the source's alone counts.
  const Dims sizes = tensor.sizes().vec();
  const Dims strides =
      options.source ? detail::contiguous_strides(sizes) : detail::strides_like(sizes, sizes, tensor.strides());
  Tensor result = detail::wrap(detail::intern_spec(mesh, placements, sizes, strides), local);
  if (tensor.requires_grad()) result.set_requires_grad(true);
  return result;
}

Tensor to_local(const Tensor& tensor, const std::optional<Placements>& grad_placements) {
  const auto& spec = detail::require_dtensor("to_local", tensor).spec;
  if (!grad_placements) return detail::to_local_edge(tensor, detail::grad_placements_for(spec->placements));
  const Placements wanted = checked("to_local", spec->mesh, spec->sizes, *grad_placements);
  if (!detail::fits_parts(*spec, wanted)) {
    detail::throw_value_error(
        ErrorText("to_local", "the gradient's parts would be others than the tensor's")
            .fact("tensor", to_string(tensor))
            .fact("grad_placements", to_string(wanted))
            .help("Partial() or Replicate() where the tensor is not cut, its own Shard where it is"));
  }
  return detail::to_local_edge(tensor, wanted);
}

Tensor constrain(const Tensor& tensor, Placements placements) {
  return is_dtensor(tensor) ? redistribute(tensor, std::move(placements)) : tensor;
}

Tensor full_tensor(const Tensor& tensor) {
  if (!is_dtensor(tensor)) {
    if (auto whole = detail::gather_from_xla(tensor)) return *whole;
  }
  const auto& spec = detail::require_dtensor("full_tensor", tensor).spec;
  const detail::CauseScope cause("full_tensor", [&](detail::Cause& c) { detail::about(c, tensor); });
  const Placements whole(spec->placements.size(), Replicate());
  return detail::to_local_edge(detail::redistribute_edge(tensor, whole), whole);
}

Tensor zeros(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options) {
  return make_local("zeros", shape, mesh, std::move(placements), options,
                    [](const Dims& sizes, at::TensorOptions o) { return at::zeros(sizes, o); });
}
Tensor ones(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options) {
  return make_local("ones", shape, mesh, std::move(placements), options,
                    [](const Dims& sizes, at::TensorOptions o) { return at::ones(sizes, o); });
}
Tensor empty(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options) {
  return make_local("empty", shape, mesh, std::move(placements), options,
                    [](const Dims& sizes, at::TensorOptions o) { return at::empty(sizes, o); });
}
Tensor full(at::IntArrayRef shape, const at::Scalar& value, const DeviceMesh& mesh, Placements placements,
            at::TensorOptions options) {
  return make_local("full", shape, mesh, std::move(placements), options,
                    [&](const Dims& sizes, at::TensorOptions o) { return at::full(sizes, value, o); });
}

Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, const DeviceMesh& mesh,
              Placements placements, at::TensorOptions options) {
  const Tensor shape = at::arange(start, end, step, options.device(c10::kMeta).requires_grad(std::nullopt));
  const auto dtype = shape.dtype();
  return make_local("arange", shape.sizes(), mesh, placements, options, [&](const Dims& sizes, at::TensorOptions o) {
    const Layout layout{mesh.mesh(), shape.sizes().vec(), checked("arange", mesh, shape.sizes().vec(), placements)};
    if (!mesh.coordinate()) return at::empty(sizes, o.dtype(dtype));
    Layout whole = layout;
    for (Placement& p : whole.placements) {
      if (is_partial(p)) p = Replicate();
    }
    Tensor rows = at::empty(sizes, o.dtype(dtype));
    int64_t at = 0;
    for (const Run& run : local_runs(whole, 0, *mesh.coordinate())) {
      const Tensor index =
          at::arange(run.offset, run.offset + run.size, at::TensorOptions(c10::kLong).device(o.device()));
      // As torch does: a number times an index of integers would be a float32.
      const bool real = c10::isFloatingType(c10::typeMetaToScalarType(dtype));
      rows.narrow(0, at, run.size).copy_((real ? index.to(c10::kDouble) : index).mul(step).add(start));
      at += run.size;
    }
    return rows;
  });
}

std::string to_string(const Tensor& tensor) {
  if (const auto* meta = meta_of(tensor)) return detail::describe(*meta->spec, tensor.scalar_type());
  return tensor.defined() ? tensor_text(tensor) : "undefined";
}

void distribute_parameter_(Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                           const DistributeOptions& options) {
  const bool requires_grad = tensor.requires_grad();
  if (detail::is_xla(mesh)) {
    const Tensor marked = detail::mark_for_xla("distribute_parameter_", tensor, mesh, placements);
    if (marked.is_same(tensor)) return;
    tensor.set_data(marked.detach());
    tensor.set_requires_grad(requires_grad);
    return;
  }
  const Tensor distributed = distribute_tensor(tensor.detach(), mesh, std::move(placements), options);
  tensor.set_data(distributed);
  tensor.set_requires_grad(requires_grad);
}

void register_rule(const std::string& op, const std::string& rule) {
  detail::as_c10_errors([&] { rules::add_rule(op, rule); });
}

}  // namespace sherd
