#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world_state.h"
#include "sherd/group.h"
#include "sherd/mesh.h"

namespace sherd::detail {

/// What a DeviceMesh points at. One object per structure and world; never changed once made, apart from the names
/// that flatten() adds to its root and from its generator.
class DeviceMeshState : public std::enable_shared_from_this<DeviceMeshState> {
 public:
  Mesh mesh;
  c10::DeviceType device_type = c10::DeviceType::CPU;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::shared_ptr<WorldState> world;
  std::optional<Dims> coordinate;
  std::vector<std::string> backends;                // per axis, "" for the world's
  std::vector<std::shared_ptr<GroupState>> groups;  // per axis, where this rank is in the mesh
  std::vector<const std::string*> labels;           // per axis: what reports call it
  mutable std::map<std::string, Mesh> flattened;    // what flatten() made of this root, by name
  mutable at::Generator generator;                  // of its own, where it was given one; guarded by world->mutex
};

}  // namespace sherd::detail
