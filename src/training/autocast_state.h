#pragma once
// This thread's autocast settings, kept and put back.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>

namespace sherd::detail {

struct AutocastState {
  struct OfDevice {
    c10::DeviceType type;
    bool enabled;
    c10::ScalarType dtype;
  };
  std::array<OfDevice, 2> devices;  // CPU and CUDA

  static AutocastState now();
};

/// While it lives, the settings are these, and no cast weight is taken from the cache or put there: one that was cast
/// without gradients would lose the weight's.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState outer_;
  bool cached_;
};

}  // namespace sherd::detail
