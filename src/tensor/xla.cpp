#include "tensor/xla.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "comm/errors.h"
#include "sherd/dtensor.h"
#include "sherd/xla_bridge.h"

namespace sherd {
namespace {

using BridgePtr = std::shared_ptr<const XlaBridge>;

struct Registered {
  std::mutex mutex;
  BridgePtr bridge;
};

// Never destroyed: its functions may be Python's, whose interpreter ends before static objects do.
Registered& registered() {
  static Registered& instance = *new Registered;
  return instance;
}

BridgePtr current_bridge() {
  const std::lock_guard lock(registered().mutex);
  return registered().bridge;
}

BridgePtr require_bridge(std::string_view operation, const DeviceMesh& mesh) {
  if (BridgePtr bridge = current_bridge()) return bridge;
  detail::throw_value_error(ErrorText(operation, "to use an \"xla\" mesh, install the torch_xla package")
                                .fact("mesh", to_string(mesh))
                                .fact("bridge", "none is registered")
                                .help("sherd::register_xla_bridge({.mark = ..., .is_marked = ...}): docs/xla.md"));
}

}  // namespace

void register_xla_bridge(XlaBridge bridge) {
  const bool none = !bridge.mark && !bridge.is_marked && !bridge.gather;
  if (!none && !(bridge.mark && bridge.is_marked)) {
    detail::throw_value_error(ErrorText("register_xla_bridge", "a bridge needs both of its functions")
                                  .fact("missing", bridge.mark ? "is_marked" : "mark")
                                  .help("sherd::register_xla_bridge({.mark = ..., .is_marked = ...}): docs/xla.md"));
  }
  const std::lock_guard lock(registered().mutex);
  registered().bridge = none ? nullptr : std::make_shared<const XlaBridge>(std::move(bridge));
}

bool is_xla_marked(const at::Tensor& tensor) {
  const BridgePtr bridge = current_bridge();
  return bridge != nullptr && tensor.defined() && bridge->is_marked(tensor);
}

namespace detail {

void refuse_xla_mesh(std::string_view operation, const DeviceMesh& mesh) {
  if (!is_xla(mesh)) return;
  throw_value_error(ErrorText(operation, "XLA devices hold no DTensors")
                        .fact("mesh", to_string(mesh))
                        .help("distribute_tensor(x, mesh, placements) gives x to XLA: docs/xla.md"));
}

XlaSharding sharding_for_xla(std::string_view operation, const at::Tensor& tensor, const DeviceMesh& mesh,
                             const Placements& placements) {
  const BridgePtr bridge = require_bridge(operation, mesh);
  if (is_dtensor(tensor) || bridge->is_marked(tensor)) {
    throw_value_error(ErrorText(operation, "the tensor is distributed already")
                          .fact("it is", is_dtensor(tensor) ? to_string(tensor) : "marked for XLA")
                          .help("distribute_tensor(full_tensor(x), mesh, placements)"));
  }
  return as_c10_errors([&] {
    const Dims shape = tensor.sizes().vec();
    Placements checked = checked_placements(operation, mesh.mesh(), shape, placements);
    for (size_t axis = 0; axis < checked.size(); ++axis) {
      if (!is_partial(checked[axis])) continue;
      const std::string what =
          fmt::format("{} on axis {}", to_string(checked[axis]), mesh.mesh().axis_label(static_cast<int64_t>(axis)));
      checked[axis] = Replicate();
      throw_value_error(ErrorText(operation, "parts of a sum cannot be given to XLA")
                            .fact("placement", what)
                            .help(fmt::format("distribute_tensor(x, mesh, {})", to_code(checked))));
    }
    return xla_sharding({mesh.mesh(), shape, checked});
  });
}

at::Tensor mark_for_xla(std::string_view operation, const at::Tensor& tensor, const DeviceMesh& mesh,
                        const Placements& placements) {
  const XlaSharding sharding = sharding_for_xla(operation, tensor, mesh, placements);
  at::Tensor marked = require_bridge(operation, mesh)->mark(tensor, sharding);
  if (!marked.defined() || !marked.sizes().equals(tensor.sizes())) {
    throw_value_error(ErrorText(operation, "the XLA bridge has returned another tensor")
                          .fact("given", to_string(tensor))
                          .fact("returned", to_string(marked))
                          .help("XlaBridge::mark returns the tensor itself, or one of its shape"));
  }
  return marked;
}

std::optional<at::Tensor> gather_from_xla(const at::Tensor& tensor) {
  const BridgePtr bridge = current_bridge();
  if (!bridge || !tensor.defined() || !bridge->is_marked(tensor)) return std::nullopt;
  if (bridge->gather) return bridge->gather(tensor);
  throw_value_error(ErrorText("full_tensor", "the XLA bridge cannot gather")
                        .fact("tensor", to_string(tensor))
                        .help("sherd::register_xla_bridge({.mark = ..., .is_marked = ..., .gather = ...})"));
}

}  // namespace detail
}  // namespace sherd
