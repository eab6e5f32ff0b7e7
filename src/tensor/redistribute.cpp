#include "sherd/redistribute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "comm/answers.h"
#include "comm/device_mark.h"
#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "comm/world_state.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "tensor/boxes.h"
#include "tensor/cause_of.h"
#include "tensor/checked.h"
#include "tensor/costs.h"
#include "tensor/crossing.h"
#include "tensor/edges.h"
#include "tensor/held_boxes.h"
#include "tensor/joint_mesh.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::checked;
using detail::meta_of;

// A Partial's parts are not defined by its value.
void refuse_new_partials(const char* operation, const Placements& from, const Placements& to) {
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (!is_partial(to[axis]) || (from.size() == to.size() && to[axis] == from[axis])) continue;
    detail::throw_value_error(ErrorText(operation, "a tensor cannot be made Partial: its parts are not defined")
                                  .fact("from", to_string(from))
                                  .fact("to", to_string(to))
                                  .help("sherd::from_local(part, mesh, {sherd::Partial()}) where the parts are known"));
  }
}

Placements target_of(const Tensor& tensor, Placements placements) {
  const auto& spec = detail::require_dtensor("redistribute", tensor).spec;
  placements = checked("redistribute", spec->mesh, spec->sizes, std::move(placements));
  refuse_new_partials("redistribute", spec->placements, placements);
  return placements;
}

// The same on another mesh.
Placements target_on(const detail::Spec& from, const DeviceMesh& mesh, Placements placements) {
  placements = checked("redistribute", mesh, from.sizes, std::move(placements));
  refuse_new_partials("redistribute", {}, placements);
  if (from.mesh.device_type() != mesh.device_type() || !(from.mesh.world() == mesh.world())) {
    const auto describe = [](const DeviceMesh& m) {
      return to_string(m.mesh()) + " of " + c10::DeviceTypeName(m.device_type(), true);
    };
    detail::throw_value_error(ErrorText("redistribute", "the two meshes must be of one world and one kind of device")
                                  .fact("from", describe(from.mesh))
                                  .fact("to", describe(mesh))
                                  .help("tensor.to(device) on a mesh of that device first"));
  }
  return placements;
}

void check_options(const RedistributeOptions& options) {
  detail::check_staging("redistribute", options.staging_bytes, "RedistributeOptions{.staging_bytes = 64 << 20}");
}

// Every rank must be about to do the same.
void compare_plans(const Group& group, const std::string& plan) {
  const auto difference = detail::find_difference(group, plan);
  if (!difference) return;
  detail::throw_value_error(ErrorText("redistribute", "the ranks have different plans")
                                .fact(fmt::format("rank {}", difference->rank), difference->text)
                                .fact(fmt::format("rank {}", difference->other_rank), difference->other_text)
                                .help("call redistribute with the same tensor and target on every rank"));
}

// Where tensors go: on the mesh that they are on, or to another one.
struct Target {
  std::optional<DeviceMesh> mesh;
  std::vector<Placements> placements;
};

// What ranks must mean alike: what goes where, and how.
std::string text_of_moves(const std::vector<Tensor>& tensors, const Target& to, const RedistributeOptions& options) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const detail::SpecPtr& from = meta_of(tensors[i])->spec;
    const DeviceMesh& mesh = to.mesh ? *to.mesh : from->mesh;
    const Placements& placements = to.placements[i];
    if (from->boxes) {
      texts.push_back(to_string(tensors[i]) + " -> " + to_string(placements) + " on " + to_string(mesh.mesh()));
      continue;
    }
    const auto target = detail::intern_spec(mesh, placements, from->sizes, from->strides);
    const c10::ScalarType dtype = tensors[i].scalar_type();
    texts.push_back(to.mesh ? detail::crossing_between(from, target, dtype, options)->text
                            : detail::plan_between(from, target, dtype, options)->text);
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

void compare_where_asked(const std::vector<Tensor>& tensors, const Target& to, const RedistributeOptions& options) {
  if (tensors.empty()) return;
  const DeviceMesh& mesh = meta_of(tensors[0])->spec->mesh;
  if (!mesh.world().checks_calls() || !mesh.coordinate() || mesh.size() == 1) return;
  compare_plans(detail::group_of(mesh), text_of_moves(tensors, to, options));
}

// Those that have tensors make sure that they mean the same target on another mesh: with other targets they would wait
// for others. A slice is another one for other ranks; nobody leaves the mesh then.
void compare_targets(const std::vector<Tensor>& tensors, const Target& to, const RedistributeOptions& options,
                     bool background) {
  const DeviceMesh& from = meta_of(tensors.front())->spec->mesh;
  if (detail::is_slice(*to.mesh, from) || detail::is_slice(from, *to.mesh)) return;
  if (!from.coordinate() || from.size() == 1) return;
  const detail::SpecPtr& first = meta_of(tensors.front())->spec;
  const auto target = detail::intern_spec(*to.mesh, to.placements.front(), first->sizes, first->strides);
  // Of a large mesh it takes a while to find.
  const Group group = first->boxes
                          ? detail::group_of(from)
                          : *detail::crossing_between(first, target, tensors.front().scalar_type(), options)->having;
  compare_plans(background ? group.in_background() : group, text_of_moves(tensors, to, options));
}

// Below autograd.
std::vector<Tensor> moved_to(const Target& to, const std::vector<Tensor>& tensors, const RedistributeOptions& options,
                             bool background) {
  if (to.mesh) {
    compare_targets(tensors, to, options, background);
    return detail::redistributed(tensors, *to.mesh, to.placements, options, background);
  }
  if (tensors.size() > 1) return detail::redistributed(tensors, to.placements, options, background);
  return {detail::redistributed(tensors.front(), to.placements.front(), options, background)};
}

}  // namespace

struct PendingTensors::State {
  // Returns when the data are there: in memory, or for what this thread's stream does next.
  void wait() const;

  std::vector<Tensor> tensors;  // what is moved
  RedistributeOptions options;
  std::vector<Tensor> moved;
  std::shared_ptr<detail::BackgroundTask> task;  // on the CPU
  std::optional<detail::DeviceMark> there;       // on a GPU
  bool taken = false;
};

namespace {

// Whether this rank's groups along the mesh can be talked in beside what it says in its own thread. Where a mesh was
// made of groups that a program had, there is nothing but these.
bool has_background(const DeviceMesh& mesh) {
  if (!mesh.coordinate()) return true;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (!mesh.group(axis).has_background()) return false;
  }
  return true;
}

// Whether a thread of its own can make this rank's calls of a move. Ranks may answer differently, those outside a mesh
// know nothing of its groups: each call goes by a group of its own where there is one, whichever thread makes it.
bool goes_beside(const DeviceMesh& from, const Target& to) {
  const bool on_the_larger = to.mesh && detail::is_slice(from, *to.mesh);
  return from.device_type() != c10::DeviceType::Meta && has_background(from) &&
         (!on_the_larger || has_background(*to.mesh));
}

// Starts a move whose tensors and targets were checked. It is over before it returns where nothing can go beside.
// `keeps`: the tensors are asked for when they have been moved, too.
std::shared_ptr<PendingTensors::State> start(const std::vector<Tensor>& tensors, const Target& to,
                                             const RedistributeOptions& options, bool keeps) {
  const detail::CauseScope cause("redistribute", [&](detail::Cause& c) {
    for (const Tensor& tensor : tensors) detail::about(c, tensor);
  });
  auto state = std::make_shared<PendingTensors::State>();
  if (tensors.empty()) return state;
  state->tensors = tensors;
  state->options = options;
  for (const Tensor& tensor : tensors) {
    const detail::HeldBoxesPtr boxes = meta_of(tensor)->spec->boxes;
    if (boxes && boxes->mesh->coordinate()) boxes->check_copies("redistribute_async");  // the ranks talk in this thread
    detail::current_local(*meta_of(tensor));  // a view is brought up to date by this thread
  }
  const DeviceMesh mesh = meta_of(tensors.front())->spec->mesh;
  // It goes by the costs of now. Others may be set before its turn comes, and on another rank it is under way already.
  const auto move = [state, to, costs = detail::costs_now()] {
    const detail::CostsScope scope(costs);
    state->moved = moved_to(to, state->tensors, state->options, /*background=*/true);
  };
  const auto let_go = [state, keeps] {
    if (!keeps) state->tensors.clear();
  };
  const c10::Device device = meta_of(tensors.front())->local.device();
  if (!goes_beside(mesh, to)) {
    mesh.world().state()->background().drain();  // what was started before comes first
    move();
    let_go();
  } else if (device.is_cpu()) {
    state->task = mesh.world().state()->background().start([move, let_go] {
      move();
      let_go();
    });
  } else {
    // Collectives on a GPU return at once: a stream of their own is enough.
    const c10::impl::VirtualGuardImpl guard(device.type());
    const detail::DeviceMark given(meta_of(tensors.front())->local);
    const c10::StreamGuard beside(guard.getStreamFromGlobalPool(device));
    given.wait();
    move();
    // Whoever drops the result gives the tensor's memory back while it is still being sent.
    for (const Tensor& tensor : state->tensors) {
      const Tensor& local = meta_of(tensor)->local;
      if (local.numel() > 0) local.record_stream(guard.getStream(device));
    }
    let_go();
    state->there = detail::DeviceMark(meta_of(state->moved.front())->local);
  }
  return state;
}

// One of the tensors that were started together.
class Moving final : public detail::Arrival {
 public:
  Moving(std::shared_ptr<PendingTensors::State> state, size_t i) : state_(std::move(state)), i_(i) {}
  Tensor local() override {
    if (state_ == nullptr) return local_;
    state_->wait();
    if (state_->there) return meta_of(state_->moved[i_])->local;  // every stream that uses it waits
    local_ = meta_of(state_->moved[i_])->local;
    state_->moved[i_].reset();  // those that are not used yet keep nothing of it
    state_ = nullptr;
    return local_;
  }

 private:
  std::shared_ptr<PendingTensors::State> state_;  // until it was asked for
  const size_t i_;
  Tensor local_;
};

// Tensors that wait for their data when they are used.
std::vector<Tensor> arriving(const std::vector<Tensor>& tensors, const Target& to, const RedistributeOptions& options) {
  const auto state = start(tensors, to, options, /*keeps=*/false);
  std::vector<Tensor> results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const detail::Spec& from = *meta_of(tensors[i])->spec;
    const Placements& wanted = to.placements[i];
    if (!to.mesh && !from.boxes && from.placements == wanted) {
      results.push_back(tensors[i]);
      continue;
    }
    const Dims strides = from.boxes ? detail::contiguous_strides(from.sizes) : from.strides;
    const detail::SpecPtr spec = to.mesh ? detail::spec_after(tensors[i], *to.mesh, wanted, options)
                                         : detail::intern_spec(from.mesh, wanted, from.sizes, strides);
    Tensor result = detail::wrap(spec, at::empty({0}, meta_of(tensors[i])->local.options()));
    meta_of(result)->arrival = std::make_shared<Moving>(state, i);
    results.push_back(detail::moved_edge(tensors[i], result, options));
  }
  return results;
}

}  // namespace

Tensor redistribute(const Tensor& tensor, Placements placements, const RedistributeOptions& options) {
  check_options(options);
  const detail::CauseScope cause("redistribute", [&](detail::Cause& c) { detail::about(c, tensor); });
  const Placements to = target_of(tensor, std::move(placements));
  compare_where_asked({tensor}, {{}, {to}}, options);
  if (options.async) return arriving({tensor}, {{}, {to}}, options).front();
  return detail::redistribute_edge(tensor, to, options);
}

Tensor redistribute(const Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                    const RedistributeOptions& options) {
  return redistribute(std::vector{tensor}, mesh, {std::move(placements)}, options).front();
}

namespace {

// Where each tensor goes; throws where they cannot go together.
Target targets_of(const std::vector<Tensor>& tensors, const std::optional<DeviceMesh>& mesh,
                  const std::vector<Placements>& placements, const RedistributeOptions& options) {
  check_options(options);
  if (tensors.size() != placements.size()) {
    detail::throw_value_error(ErrorText("redistribute", "there must be one placement list for each tensor")
                                  .fact("tensors", std::to_string(tensors.size()))
                                  .fact("placement lists", std::to_string(placements.size()))
                                  .help("redistribute({a, b}, {{Shard(0)}, {Shard(1)}})"));
  }
  Target to;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const detail::Spec& from = *detail::require_dtensor("redistribute", tensors[i]).spec;
    const DeviceMesh& first = meta_of(tensors[0])->spec->mesh;
    if (from.mesh != first) {
      detail::throw_value_error(ErrorText("redistribute", "tensors that are moved together must be on one mesh")
                                    .fact("tensor 0", to_string(tensors[0]))
                                    .fact(fmt::format("tensor {}", i), to_string(tensors[i]))
                                    .help("call redistribute once for each mesh"));
    }
    if (mesh && (*mesh != first || options.relabel)) to.mesh = mesh;
    to.placements.push_back(to.mesh ? target_on(from, *mesh, placements[i]) : target_of(tensors[i], placements[i]));
  }
  return to;
}

std::vector<Tensor> redistribute_all(const std::vector<Tensor>& tensors, const std::optional<DeviceMesh>& mesh,
                                     const std::vector<Placements>& placements, const RedistributeOptions& options) {
  const Target to = targets_of(tensors, mesh, placements, options);
  if (tensors.empty()) return {};
  const detail::CauseScope cause("redistribute", [&](detail::Cause& c) {
    for (const Tensor& tensor : tensors) detail::about(c, tensor);
  });
  if (!to.mesh) compare_where_asked(tensors, to, options);
  if (options.async) return arriving(tensors, to, options);
  if (!to.mesh) return detail::redistribute_edges(tensors, to.placements, options);
  compare_targets(tensors, to, options, /*background=*/false);
  return detail::redistribute_edges(tensors, *to.mesh, to.placements, options);
}

PendingTensors start_all(const std::vector<Tensor>& tensors, const std::optional<DeviceMesh>& mesh,
                         const std::vector<Placements>& placements, const RedistributeOptions& options) {
  const Target to = targets_of(tensors, mesh, placements, options);
  if (!to.mesh) compare_where_asked(tensors, to, options);
  return PendingTensors(start(tensors, to, options, /*keeps=*/true));
}

}  // namespace

std::vector<Tensor> redistribute(const std::vector<Tensor>& tensors, const std::vector<Placements>& placements,
                                 const RedistributeOptions& options) {
  return redistribute_all(tensors, std::nullopt, placements, options);
}
std::vector<Tensor> redistribute(const std::vector<Tensor>& tensors, const DeviceMesh& mesh,
                                 const std::vector<Placements>& placements, const RedistributeOptions& options) {
  return redistribute_all(tensors, mesh, placements, options);
}

PendingTensor redistribute_async(const Tensor& tensor, Placements placements, const RedistributeOptions& options) {
  return PendingTensor(start_all({tensor}, std::nullopt, {std::move(placements)}, options));
}
PendingTensor redistribute_async(const Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                                 const RedistributeOptions& options) {
  return PendingTensor(start_all({tensor}, mesh, {std::move(placements)}, options));
}

PendingTensors redistribute_async(const std::vector<Tensor>& tensors, const std::vector<Placements>& placements,
                                  const RedistributeOptions& options) {
  return start_all(tensors, std::nullopt, placements, options);
}
PendingTensors redistribute_async(const std::vector<Tensor>& tensors, const DeviceMesh& mesh,
                                  const std::vector<Placements>& placements, const RedistributeOptions& options) {
  return start_all(tensors, mesh, placements, options);
}

void PendingTensors::State::wait() const {
  if (task) {
    task->wait();
  } else if (there) {
    there->wait();
    for (const Tensor& tensor : moved) {
      const Tensor& local = meta_of(tensor)->local;
      const c10::impl::VirtualGuardImpl guard(local.device().type());
      if (local.numel() > 0) local.record_stream(guard.getStream(local.device()));
    }
  }
}

std::vector<Tensor> PendingTensors::wait() {
  if (state_->taken) return state_->moved;
  state_->wait();
  state_->taken = true;
  for (size_t i = 0; i < state_->moved.size(); ++i) {
    state_->moved[i] = detail::moved_edge(state_->tensors[i], state_->moved[i], state_->options);
  }
  state_->tensors.clear();
  return state_->moved;
}

std::string redistribution_text(const Tensor& tensor, const Placements& placements,
                                const RedistributeOptions& options) {
  const Placements to = target_of(tensor, placements);
  return detail::text_of_way(tensor, meta_of(tensor)->spec->mesh, to, options);
}

std::string redistribution_text(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                                const RedistributeOptions& options) {
  const auto& spec = detail::require_dtensor("redistribute", tensor).spec;
  if (spec->mesh == mesh && !options.relabel) return redistribution_text(tensor, placements, options);
  return detail::text_of_way(tensor, mesh, target_on(*spec, mesh, placements), options);
}

}  // namespace sherd
