#include "sherd/device_mesh.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/backend_config.h"
#include "comm/device_mesh_state.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sherd {
namespace {

using detail::DeviceMeshState;
using StatePtr = std::shared_ptr<const DeviceMeshState>;
using Backends = std::vector<std::pair<std::string, std::string>>;

// The device of this rank's tensors. Ranks beyond the number of devices share them, as threads on one GPU do.
c10::Device local_device(c10::DeviceType type, int local_rank) {
  if (type == c10::DeviceType::CPU || type == c10::DeviceType::Meta) return c10::Device(type);
  if (type == c10::DeviceType::XLA) return c10::Device(type, 0);  // it need not be in this torch: see xla_bridge.h
  const c10::impl::DeviceGuardImplInterface* devices =
      c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type) : nullptr;
  const int count = devices == nullptr ? 0 : static_cast<int>(devices->deviceCount());
  if (count == 0) {
    detail::throw_value_error(ErrorText("init_device_mesh", "this machine has no such device")
                                  .fact("device", c10::DeviceTypeName(type, true))
                                  .help("init_device_mesh(\"cpu\", ...)"));
  }
  const c10::Device device(type, static_cast<c10::DeviceIndex>(local_rank % count));
  devices->setDevice(device);
  return device;
}

std::vector<int64_t> ranks_along(const Mesh& mesh, int64_t axis, Dims coordinate) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < mesh.size(axis); ++i) {
    coordinate[static_cast<size_t>(axis)] = i;
    ranks.push_back(mesh.rank_at(coordinate));
  }
  return ranks;
}

void check_fits_world(const Mesh& mesh, int world_size) {
  const std::vector<int64_t> ranks = mesh.ranks();
  const int64_t highest = *std::max_element(ranks.begin(), ranks.end());
  if (highest < world_size) return;
  detail::throw_value_error(ErrorText("init_device_mesh", "the mesh is larger than the world")
                                .fact("mesh", fmt::format("{} needs rank {}", to_string(mesh), highest))
                                .fact("world", detail::rank_count(world_size))
                                .help(fmt::format("start more ranks: sherd run -n {} -- ./program, or "
                                                  "sherd::spawn({}, fn)",
                                                  highest + 1, highest + 1)));
}

// Equal structures are one object; the key says everything that makes two meshes equal.
StatePtr intern(DeviceMeshState&& state) {
  std::string key = c10::DeviceTypeName(state.device_type, true) + to_string(state.mesh);
  for (const std::string& backend : state.backends) key += ";" + backend;
  for (const auto& group : state.groups) key += fmt::format("@{}", static_cast<const void*>(group.get()));
  const std::lock_guard lock(state.world->mutex);
  auto& slot = state.world->meshes[key];
  StatePtr shared = slot.lock();
  if (!shared) {
    for (int64_t axis = 0; axis < state.mesh.ndim(); ++axis) {
      state.labels.push_back(detail::lasting_label(state.mesh.axis_label(axis)));
    }
    shared = std::make_shared<const DeviceMeshState>(std::move(state));
    slot = shared;
  }
  return shared;
}

// A mesh and the groups of its axes, for this rank. Equal members give one group, so a sub-mesh shares those of the
// mesh it is part of.
StatePtr make(const std::shared_ptr<detail::WorldState>& world, c10::DeviceType type, Mesh mesh,
              std::vector<std::string> backends) {
  DeviceMeshState state;
  state.device_type = type;
  state.world = world;
  // An "xla" mesh numbers devices, which XLA drives: no rank stands in it.
  if (type != c10::DeviceType::XLA) state.coordinate = mesh.coordinate_of(world->link().rank);
  state.device = local_device(type, world->link().local_rank);
  for (int64_t axis = 0; axis < mesh.ndim() && state.coordinate; ++axis) {
    state.groups.push_back(
        world->group(ranks_along(mesh, axis, *state.coordinate), backends[static_cast<size_t>(axis)]));
  }
  state.mesh = std::move(mesh);
  state.backends = std::move(backends);
  return intern(std::move(state));
}

[[noreturn]] void refuse_outside(const char* operation, const DeviceMeshState& state) {
  if (state.device_type == c10::DeviceType::XLA) {
    detail::throw_value_error(ErrorText(operation, "an \"xla\" mesh names devices: no rank stands in it")
                                  .fact("mesh", to_string(state.mesh))
                                  .help("distribute_tensor(x, mesh, placements) gives x to XLA: docs/xla.md"));
  }
  detail::throw_value_error(ErrorText(operation, "this rank is not in the mesh")
                                .fact("rank", std::to_string(state.world->link().rank))
                                .fact("mesh", to_string(state.mesh))
                                .help("if (mesh.coordinate()) { ... }"));
}

std::vector<std::string> backends_by_axis(const Mesh& mesh, const Backends& backends) {
  std::vector<std::string> by_axis(static_cast<size_t>(mesh.ndim()));
  for (const auto& [axis, backend] : backends) {
    detail::BackendConfig::parse(backend);
    std::string& slot = by_axis[static_cast<size_t>(mesh.axis(axis))];
    if (!slot.empty()) {
      detail::throw_value_error(ErrorText("init_device_mesh", "an axis is given two backends")
                                    .fact("axis", axis)
                                    .fact("backends", slot + " and " + backend)
                                    .help(fmt::format("{{{{\"{}\", \"{}\"}}}}", axis, slot)));
    }
    slot = backend;
  }
  return by_axis;
}

std::string with_root(const DeviceMesh& mesh) {
  const DeviceMesh root = mesh.root();
  return root == mesh ? to_string(mesh) : to_string(mesh) + " of " + to_string(root);
}

thread_local std::vector<DeviceMesh> mesh_scopes;

}  // namespace

DeviceMesh::DeviceMesh(std::string_view device_type, Mesh ranks, const Backends& backends) {
  const c10::DeviceType type = detail::parse_device_type("init_device_mesh", device_type);
  const World world = current_world();
  if (type != c10::DeviceType::XLA) check_fits_world(ranks, world.size());
  auto by_axis = detail::as_c10_errors([&] { return backends_by_axis(ranks, backends); });
  state_ = root_ = make(world.state(), type, std::move(ranks), std::move(by_axis));
}

DeviceMesh DeviceMesh::part(Mesh mesh, std::vector<std::string> backends) const {
  return DeviceMesh(make(state_->world, state_->device_type, std::move(mesh), std::move(backends)), root_);
}

DeviceMesh DeviceMesh::from_group(const Group& group, std::string_view device_type, std::string name) {
  Mesh mesh = detail::as_c10_errors([&] { return Mesh({{std::move(name), group.size()}}, group.ranks()); });
  return over_groups("from_group", {group}, device_type, std::move(mesh));
}

DeviceMesh DeviceMesh::from_groups(const std::vector<Group>& groups, std::string_view device_type, Mesh mesh) {
  return over_groups("from_groups", groups, device_type, std::move(mesh));
}

DeviceMesh DeviceMesh::over_groups(const char* operation, const std::vector<Group>& groups,
                                   std::string_view device_type, Mesh mesh) {
  DeviceMeshState state;
  state.device_type = detail::parse_device_type(operation, device_type);
  state.world = current_world().state();
  const int rank = state.world->link().rank;
  state.coordinate = mesh.coordinate_of(rank);
  if (static_cast<int64_t>(groups.size()) != mesh.ndim()) {
    detail::throw_value_error(ErrorText(operation, "one group for each mesh axis is needed")
                                  .fact("groups", std::to_string(groups.size()))
                                  .fact("mesh", to_string(mesh))
                                  .help("DeviceMesh::from_groups({dp, tp}, \"cpu\", parse_mesh(\"[dp=2, tp=2]\"))"));
  }
  for (int64_t axis = 0; axis < mesh.ndim() && state.coordinate; ++axis) {
    const Group& group = groups[static_cast<size_t>(axis)];
    const std::vector<int64_t> expected = ranks_along(mesh, axis, *state.coordinate);
    if (group.ranks() != expected) {
      detail::throw_value_error(ErrorText(operation, "a group does not fit the mesh")
                                    .fact("axis", mesh.axis_label(axis))
                                    .fact("group", group.name())
                                    .fact("mesh", "ranks " + detail::rank_list(expected) + " along this axis")
                                    .help("pass the group of this rank along each axis, in the order of the axes"));
    }
    state.groups.push_back(std::shared_ptr<detail::GroupState>(&group.state(), [group](auto*) {}));
  }
  state.device = local_device(state.device_type, state.world->link().local_rank);
  state.backends.resize(static_cast<size_t>(mesh.ndim()));
  state.mesh = std::move(mesh);
  const StatePtr shared = intern(std::move(state));
  return DeviceMesh(shared, shared);
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  constexpr const char* kHelp = "DeviceMesh::concatenate({mesh[\"dp\"], mesh[\"tp\"]})";
  const auto refuse = [&](const char* problem, const char* help) {
    ErrorText text("concatenate", problem);
    for (const DeviceMesh& mesh : meshes) text.fact("mesh", to_string(mesh.mesh()));
    detail::throw_value_error(text.help(help));
  };
  if (meshes.empty()) refuse("no mesh given", kHelp);
  const StatePtr root = meshes.front().root_;
  std::vector<MeshAxis> axes;
  std::vector<std::string> backends;
  for (const DeviceMesh& mesh : meshes) {
    if (mesh.root_ != root) {
      detail::throw_value_error(ErrorText("concatenate", "the meshes come from different root meshes")
                                    .fact("mesh", with_root(meshes.front()))
                                    .fact("mesh", with_root(mesh))
                                    .help("slice both from one mesh"));
    }
    axes.insert(axes.end(), mesh.mesh().axes().begin(), mesh.mesh().axes().end());
    backends.insert(backends.end(), mesh.state_->backends.begin(), mesh.state_->backends.end());
  }
  if (!root->coordinate) refuse_outside("concatenate", *root);
  // A rank of the result moves from this rank by each mesh's own steps, in root coordinates.
  const Dims here = *root->coordinate;
  std::vector<Dims> places = {Dims(here.size(), 0)};
  for (const DeviceMesh& mesh : meshes) {
    std::vector<Dims> further;
    for (const Dims& place : places) {
      for (const int64_t rank : mesh.mesh().ranks()) {
        const Dims there = *root->mesh.coordinate_of(rank);
        Dims sum = place;
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += there[d] - here[d];
        further.push_back(std::move(sum));
      }
    }
    places = std::move(further);
  }
  std::vector<int64_t> ranks;
  for (const Dims& place : places) {
    Dims there = here;
    for (size_t d = 0; d < there.size(); ++d) {
      there[d] += place[d];
      if (there[d] < 0 || there[d] >= root->mesh.size(static_cast<int64_t>(d))) {
        refuse("the meshes overlap", kHelp);
      }
    }
    ranks.push_back(root->mesh.rank_at(there));
  }
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    refuse("the meshes overlap", kHelp);
  }
  Mesh mesh = detail::as_c10_errors([&] { return Mesh(std::move(axes), std::move(ranks)); });
  return meshes.front().part(std::move(mesh), std::move(backends));
}

const Mesh& DeviceMesh::mesh() const { return state_->mesh; }
c10::DeviceType DeviceMesh::device_type() const { return state_->device_type; }
c10::Device DeviceMesh::device() const { return state_->device; }
World DeviceMesh::world() const { return World(state_->world); }
const std::optional<Dims>& DeviceMesh::coordinate() const { return state_->coordinate; }
DeviceMesh DeviceMesh::root() const { return DeviceMesh(root_, root_); }

Group DeviceMesh::group(int64_t axis) const {
  if (!state_->coordinate) refuse_outside("group", *state_);
  if (axis < 0 || axis >= ndim()) {
    detail::throw_value_error(ErrorText("group", "there is no such mesh axis")
                                  .fact("axis", std::to_string(axis))
                                  .fact("mesh", to_string(mesh()))
                                  .help(fmt::format("axes go from 0 to {}", ndim() - 1)));
  }
  const auto& group = state_->groups[static_cast<size_t>(axis)];
  group->set_axis_label(state_->labels[static_cast<size_t>(axis)]);
  return Group(group);
}

std::vector<Group> DeviceMesh::groups() const {
  std::vector<Group> groups;
  for (int64_t axis = 0; axis < ndim(); ++axis) groups.push_back(group(axis));
  return groups;
}

Group DeviceMesh::group(std::string_view axis) const {
  return group(detail::as_c10_errors([&] { return mesh().axis(axis); }));
}

int64_t DeviceMesh::local_rank(int64_t axis) const { return group(axis).rank(); }
int64_t DeviceMesh::local_rank(std::string_view axis) const { return group(axis).rank(); }

std::optional<DeviceMesh> DeviceMesh::find_flattened(const std::string& name) const {
  std::unique_lock lock(state_->world->mutex);
  const auto made = root_->flattened.find(name);
  if (made == root_->flattened.end() || mesh().find_axis(name)) return std::nullopt;
  Mesh flat = made->second;
  lock.unlock();
  return part(std::move(flat), {std::string()});
}

DeviceMesh DeviceMesh::operator[](std::string_view axis) const { return (*this)[std::vector{std::string(axis)}]; }

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& axes) const {
  if (!state_->coordinate) refuse_outside("mesh[...]", *state_);
  const bool any_flattened =
      std::any_of(axes.begin(), axes.end(), [&](const std::string& name) { return find_flattened(name).has_value(); });
  if (any_flattened) {
    if (axes.size() == 1) return *find_flattened(axes.front());
    std::vector<DeviceMesh> parts;
    for (const std::string& name : axes) parts.push_back((*this)[name]);
    return concatenate(parts);
  }
  return detail::as_c10_errors([&] {
    std::vector<int64_t> numbers;
    std::vector<std::string> backends;
    for (const std::string& name : axes) {
      numbers.push_back(mesh().axis(name));
      backends.push_back(state_->backends[static_cast<size_t>(numbers.back())]);
    }
    const bool ascending = std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) == numbers.end();
    if (axes.empty() || !ascending) {
      std::vector<std::string> in_order;
      for (const MeshAxis& axis : mesh().axes()) {
        const bool wanted = std::find(axes.begin(), axes.end(), axis.name) != axes.end();
        if (wanted || axes.empty()) in_order.push_back(axis.name);
      }
      detail::throw_value_error(ErrorText("mesh[...]", "axes must be named once each, in the order of the mesh")
                                    .fact("given", axes.empty() ? "none" : fmt::format("{}", fmt::join(axes, ", ")))
                                    .fact("mesh", to_string(mesh()))
                                    .help(fmt::format("mesh[{{\"{}\"}}]", fmt::join(in_order, "\", \""))));
    }
    if (static_cast<int64_t>(axes.size()) == ndim()) return *this;
    return part(mesh().slice(numbers, state_->world->link().rank), std::move(backends));
  });
}

DeviceMesh DeviceMesh::flatten(std::string name) const {
  if (name.empty() && mesh().has_names()) {
    for (const MeshAxis& axis : mesh().axes()) name += (name.empty() ? "" : "_") + axis.name;
  }
  Mesh flat = detail::as_c10_errors([&] { return mesh().flatten(0, ndim(), name); });
  if (flat == mesh()) return *this;
  if (root_->mesh.find_axis(name)) {
    detail::throw_value_error(ErrorText("flatten", "the root mesh has an axis of this name")
                                  .fact("name", name)
                                  .fact("mesh", to_string(root_->mesh))
                                  .help("mesh.flatten(\"all\")"));
  }
  DeviceMesh result = part(std::move(flat), {std::string()});
  if (name.empty()) return result;
  const std::lock_guard lock(state_->world->mutex);
  const auto [slot, fresh] = root_->flattened.emplace(name, result.mesh());
  if (!fresh && slot->second != result.mesh()) {
    detail::throw_value_error(ErrorText("flatten", "another flattened mesh has this name")
                                  .fact("name", name)
                                  .fact("that mesh", to_string(slot->second))
                                  .fact("this mesh", to_string(result.mesh()))
                                  .help("mesh.flatten(\"other_name\")"));
  }
  return result;
}

DeviceMesh DeviceMesh::unflatten(int64_t axis, std::vector<MeshAxis> into) const {
  std::vector<std::string> backends = state_->backends;
  const size_t count = into.size();
  Mesh split = detail::as_c10_errors([&] { return mesh().unflatten(axis, std::move(into)); });
  const std::string backend = backends[static_cast<size_t>(axis)];
  backends.erase(backends.begin() + axis);
  backends.insert(backends.begin() + axis, count, backend);
  return part(std::move(split), std::move(backends));
}

DeviceMesh init_device_mesh(std::string_view device_type, const std::vector<int64_t>& shape,
                            const std::vector<std::string>& names, const Backends& backends) {
  if (!names.empty() && names.size() != shape.size()) {
    detail::throw_value_error(ErrorText("init_device_mesh", "one name for each mesh axis is needed")
                                  .fact("shape", to_string(shape))
                                  .fact("names", fmt::format("{}", fmt::join(names, ", ")))
                                  .help("init_device_mesh(\"cpu\", {2, 4}, {\"dp\", \"tp\"})"));
  }
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < shape.size(); ++i) axes.push_back({names.empty() ? std::string() : names[i], shape[i]});
  Mesh mesh = detail::as_c10_errors([&] { return Mesh(std::move(axes)); });
  return DeviceMesh(device_type, std::move(mesh), backends);
}

std::string to_string(const DeviceMesh& mesh) { return to_string(mesh.mesh()); }

MeshScope::MeshScope(DeviceMesh mesh) { mesh_scopes.push_back(std::move(mesh)); }
MeshScope::~MeshScope() { mesh_scopes.pop_back(); }

DeviceMesh current_mesh() {
  if (mesh_scopes.empty()) {
    detail::throw_value_error(ErrorText("current_mesh", "no mesh is in use in this thread")
                                  .fact("scopes", "none")
                                  .help("sherd::MeshScope scope(mesh);"));
  }
  return mesh_scopes.back();
}

}  // namespace sherd
