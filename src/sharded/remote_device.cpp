#include <c10/util/hash.h>

#include <algorithm>

#include "comm/errors.h"
#include "sherd/sharding_spec.h"

namespace sherd::sharded {
namespace {

[[noreturn]] void refuse(std::string_view text, const char* why) {
  detail::throw_value_error(ErrorText("RemoteDevice", why)
                                .fact("text", "\"" + std::string(text) + "\"")
                                .help("\"rank:0/cpu\", \"rank:1/cuda:1\", \"worker1/cuda:0\" or \"cpu\""));
}

std::optional<c10::Device> device_of(std::string_view text) {
  try {
    return c10::Device(std::string(text));
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

std::optional<int64_t> whole_number(std::string_view text) {
  constexpr size_t kMostDigits = 18;
  const bool digits = !text.empty() && text.size() <= kMostDigits &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::optional<int64_t>(std::stoll(std::string(text))) : std::nullopt;
}

}  // namespace

RemoteDevice::RemoteDevice(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    if (const auto here = device_of(text)) {
      device = *here;
      return;
    }
    if (text.empty() || text.find(':') != std::string_view::npos) refuse(text, "not a device and not a worker's name");
    worker = text;
    return;
  }
  const std::string_view owner = text.substr(0, slash);
  const std::string_view where = text.substr(slash + 1);
  if (where.find('/') != std::string_view::npos) refuse(text, "more than one \"/\"");
  const auto on = device_of(where);
  if (!on) refuse(text, "no device after \"/\"");
  device = *on;
  const size_t colon = owner.find(':');
  if (colon == std::string_view::npos) {
    if (owner.empty()) refuse(text, "the worker's name is empty");
    worker = owner;
    return;
  }
  if (owner.substr(0, colon) != "rank") refuse(text, "a worker's name holds a \":\"");
  rank = whole_number(owner.substr(colon + 1));
  if (!rank) refuse(text, "the rank is not a number");
}

std::string to_string(const RemoteDevice& device) {
  if (!device.worker.empty()) return device.worker + "/" + device.device.str();
  if (device.rank) return "rank:" + std::to_string(*device.rank) + "/" + device.device.str();
  return device.device.str();
}

}  // namespace sherd::sharded

size_t std::hash<sherd::sharded::RemoteDevice>::operator()(const sherd::sharded::RemoteDevice& device) const {
  return c10::get_hash(device.worker, device.rank.value_or(-1), device.device);
}
