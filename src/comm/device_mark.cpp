#include "comm/device_mark.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace sherd::detail {

DeviceMark::DeviceMark(const at::Tensor& tensor) : device_(tensor.device()) {
  if (device_.is_cpu() || device_.is_meta()) return;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  event_ = std::make_shared<c10::Event>(device_.type());
  event_->record(guard.getStream(device_));
}

void DeviceMark::wait() const {
  if (!event_) return;
  event_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

}  // namespace sherd::detail
