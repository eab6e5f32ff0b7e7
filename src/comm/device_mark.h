#pragma once
// A point in a device's work that another thread's work can wait for. On the CPU there is nothing to wait for.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>

namespace sherd::detail {

class DeviceMark {
 public:
  DeviceMark() = default;
  /// Marks the work given so far to the current stream of the device of `tensor`.
  explicit DeviceMark(const at::Tensor& tensor);
  /// Lets this thread's current stream wait for the marked work.
  void wait() const;

 private:
  std::shared_ptr<c10::Event> event_;
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

}  // namespace sherd::detail
