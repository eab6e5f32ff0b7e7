#include "comm/backend_config.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

constexpr const char* kHelp = "\"cpu:gloo,cuda:nccl\", or one name for all devices";
constexpr std::array kBackends = {"threads", "auto", "shm", "gloo", "nccl", "mpi", "fake"};

std::string checked_backend(const std::string& name, const std::string& text) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end()) {
    throw_value_error(ErrorText("backend", "there is no backend called \"" + name + "\"")
                          .fact("text", "\"" + text + "\"")
                          .fact("known", "threads, auto, shm, gloo, nccl, mpi, fake")
                          .help(kHelp));
  }
  return name;
}

}  // namespace

c10::DeviceType parse_device_type(std::string_view operation, std::string_view text) {
  try {
    const c10::Device device{std::string(text)};
    if (!device.has_index()) return device.type();
  } catch (const c10::Error&) {  // said below in our words
  }
  throw_value_error(ErrorText(operation, "not a device type")
                        .fact("given", "\"" + std::string(text) + "\"")
                        .help("\"cpu\" or \"cuda\", without an index: each rank takes the device of its local rank"));
}

BackendConfig BackendConfig::parse(const std::string& text) {
  const auto twice = [&](const std::string& what) {
    throw_value_error(ErrorText("backend", what + " given two backends").fact("text", "\"" + text + "\"").help(kHelp));
  };
  BackendConfig config;
  config.text_ = text;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      if (!config.for_all_.empty()) twice("all devices are");
      config.for_all_ = checked_backend(part, text);
      continue;
    }
    const c10::DeviceType device = parse_device_type("backend", part.substr(0, colon));
    for (const auto& [earlier, name] : config.by_device_) {
      if (earlier == device) twice(c10::DeviceTypeName(device, true) + " is");
    }
    const std::string name = checked_backend(part.substr(colon + 1), text);
    if (name == "mpi" && device != c10::DeviceType::CPU) {
      throw_value_error(ErrorText("backend", "mpi is for tensors of the CPU alone")
                            .fact("text", "\"" + text + "\"")
                            .help("\"cpu:mpi,cuda:nccl\""));
    }
    config.by_device_.emplace_back(device, name);
  }
  return config;
}

std::string BackendConfig::backend_for(c10::DeviceType device) const {
  for (const auto& [type, name] : by_device_) {
    if (type == device) return name;
  }
  const bool nccl = for_all_ == "nccl" && device != c10::DeviceType::CUDA;
  const bool mpi = for_all_ == "mpi" && device != c10::DeviceType::CPU;
  return nccl || mpi ? "" : for_all_;
}

bool BackendConfig::has(const std::string& backend) const {
  return for_all_ == backend ||
         std::any_of(by_device_.begin(), by_device_.end(), [&](const auto& entry) { return entry.second == backend; });
}

}  // namespace sherd::detail
