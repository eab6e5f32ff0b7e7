#pragma once
// Which backend serves which device type: torch's "cpu:gloo,cuda:nccl".

#include <c10/core/DeviceType.h>

#include <string>
#include <utility>
#include <vector>

namespace sherd::detail {

class BackendConfig {
 public:
  /// "gloo" means that backend for every device type that it can serve. Throws c10::ValueError for an unknown backend
  /// or bad text.
  static BackendConfig parse(const std::string& text);
  /// The backend's name, or "" where none is configured.
  std::string backend_for(c10::DeviceType device) const;
  /// Whether it is configured for any device.
  bool has(const std::string& backend) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string for_all_;
  std::vector<std::pair<c10::DeviceType, std::string>> by_device_;
};

/// "cpu" or "cuda" (no index) as a device type. Throws c10::ValueError otherwise.
c10::DeviceType parse_device_type(std::string_view operation, std::string_view text);

}  // namespace sherd::detail
