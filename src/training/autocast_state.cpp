#include "training/autocast_state.h"

#include <ATen/autocast_mode.h>

namespace sherd::detail {
namespace {

void apply(const AutocastState& state) {
  for (const auto& device : state.devices) {
    at::autocast::set_autocast_enabled(device.type, device.enabled);
    at::autocast::set_autocast_dtype(device.type, device.dtype);
  }
}

AutocastState::OfDevice now_on(c10::DeviceType type) {
  return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

}  // namespace

AutocastState AutocastState::now() { return {{now_on(c10::DeviceType::CPU), now_on(c10::DeviceType::CUDA)}}; }

AutocastScope::AutocastScope(const AutocastState& state)
    : outer_(AutocastState::now()), cached_(at::autocast::is_autocast_cache_enabled()) {
  apply(state);
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  at::autocast::set_autocast_cache_enabled(cached_);
  apply(outer_);
}

}  // namespace sherd::detail
