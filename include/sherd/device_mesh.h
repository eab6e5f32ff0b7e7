#pragma once
// A mesh of devices whose ranks can talk along each axis.

#include <c10/core/Device.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/group.h"
#include "sherd/mesh.h"
#include "sherd/world.h"

namespace sherd {

namespace detail {
class DeviceMeshState;
}

/// A handle: copies name the same mesh, and two meshes of one world with equal structure (device type, axes with
/// their names, ranks, backends) are equal and have one identity(), however they came about. Making one costs no
/// communication and concerns its members alone; a rank outside it may make it too and gets an empty coordinate.
/// Meshes are a rank's own: an equal mesh in another world, of another rank thread say, is another mesh.
class DeviceMesh {
 public:
  /// `ranks` of the current world. Throws c10::ValueError where the mesh is larger than the world.
  /// `backends` overrides the world's backend per axis: {{"dp", "gloo"}}.
  DeviceMesh(std::string_view device_type, Mesh ranks,
             const std::vector<std::pair<std::string, std::string>>& backends = {});

  /// A one-axis mesh over a group that exists.
  static DeviceMesh from_group(const Group& group, std::string_view device_type, std::string name = {});
  /// An n-axis mesh whose axis i talks through groups[i]; the groups must fit `mesh` as seen from this rank.
  static DeviceMesh from_groups(const std::vector<Group>& groups, std::string_view device_type, Mesh mesh);
  /// One mesh of several sub-meshes of the same root mesh: axes side by side.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  const Mesh& mesh() const;
  c10::DeviceType device_type() const;
  /// Where this rank's local tensors live.
  c10::Device device() const;
  World world() const;

  int64_t ndim() const { return mesh().ndim(); }
  int64_t size() const { return mesh().size(); }
  int64_t size(int64_t axis) const { return mesh().size(axis); }
  /// Where this rank stands, or nothing if it is not in the mesh.
  const std::optional<Dims>& coordinate() const;

  /// The group along an axis, through this rank. Throws where this rank is not in the mesh.
  Group group(int64_t axis) const;
  Group group(std::string_view axis) const;
  std::vector<Group> groups() const;
  /// This rank's place along an axis.
  int64_t local_rank(int64_t axis) const;
  int64_t local_rank(std::string_view axis) const;

  /// The sub-mesh through this rank along some axes, in the order of this mesh. It shares the groups. Names that
  /// flatten() gave to meshes of this root are found too.
  DeviceMesh operator[](std::string_view axis) const;
  DeviceMesh operator[](const std::vector<std::string>& axes) const;
  DeviceMesh operator[](std::initializer_list<std::string_view> axes) const {  // mesh[{"dp", "tp"}]
    return (*this)[std::vector<std::string>(axes.begin(), axes.end())];
  }
  /// All axes as one, called `name`; "dp_tp" where none is given.
  DeviceMesh flatten(std::string name = {}) const;
  /// One axis as several.
  DeviceMesh unflatten(int64_t axis, std::vector<MeshAxis> into) const;
  /// The mesh that this one was sliced from, or itself.
  DeviceMesh root() const;
  bool same_root(const DeviceMesh& other) const { return root_ == other.root_; }

  bool operator==(const DeviceMesh& other) const { return state_ == other.state_; }
  const detail::DeviceMeshState* identity() const { return state_.get(); }

 private:
  using StatePtr = std::shared_ptr<const detail::DeviceMeshState>;
  DeviceMesh(StatePtr state, StatePtr root) : state_(std::move(state)), root_(std::move(root)) {}
  static DeviceMesh over_groups(const char* operation, const std::vector<Group>& groups, std::string_view device_type,
                                Mesh mesh);
  DeviceMesh part(Mesh mesh, std::vector<std::string> backends) const;
  std::optional<DeviceMesh> find_flattened(const std::string& name) const;

  StatePtr state_;
  StatePtr root_;  // what it was sliced from; itself where it was not
};

/// A mesh over ranks 0, 1, 2, ... of the current world. Every rank of it calls this.
DeviceMesh init_device_mesh(std::string_view device_type, const std::vector<int64_t>& shape,
                            const std::vector<std::string>& names = {},
                            const std::vector<std::pair<std::string, std::string>>& backends = {});

/// "[dp=2, tp=4]"
std::string to_string(const DeviceMesh& mesh);

/// Makes a mesh the current one of this thread for a scope; scopes nest.
class MeshScope {
 public:
  explicit MeshScope(DeviceMesh mesh);
  ~MeshScope();
  MeshScope(const MeshScope&) = delete;
  MeshScope& operator=(const MeshScope&) = delete;
};

/// The innermost MeshScope's mesh. Throws c10::ValueError where there is none.
DeviceMesh current_mesh();

}  // namespace sherd
