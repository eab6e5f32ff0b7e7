#include "parallel/channel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "comm/observer.h"

namespace sherd::detail {

using at::Tensor;

Channel::Channel(const Group& group, const std::string& name, c10::Device device, int to, int from)
    : group_(group.in_background(name)), device_(device), to_(to), from_(from) {
  // Connections are made by all members together, and messages are between two.
  all_reduce(group_, at::zeros({1}, at::TensorOptions(at::kFloat).device(device))).wait();
}

void Channel::give(const Tensor& part) {
  const CauseScope cause("pipeline");
  Work work = send(group_, part, to_);
  sent_.push_back({part, std::move(work)});
}

void Channel::take(const Tensor& part) {
  const CauseScope cause("pipeline");
  receive(group_, part, from_).wait();
}

void Channel::give_text(const std::string& text) {
  const auto bytes = static_cast<int64_t>(text.size());
  const Tensor letters = at::empty({bytes}, at::TensorOptions(at::kByte));
  std::copy(text.begin(), text.end(), letters.mutable_data_ptr<uint8_t>());
  give(at::full({1}, bytes, at::TensorOptions(at::kLong).device(device_)));
  give(letters.to(device_));
}

std::string Channel::take_text() {
  const Tensor bytes = at::empty({1}, at::TensorOptions(at::kLong).device(device_));
  take(bytes);
  const Tensor letters = at::empty({bytes.item<int64_t>()}, at::TensorOptions(at::kByte).device(device_));
  take(letters);
  const Tensor here = letters.cpu();
  return {reinterpret_cast<const char*>(here.const_data_ptr<uint8_t>()), static_cast<size_t>(here.numel())};
}

void Channel::finish() {
  for (Sent& each : sent_) each.work.wait();
  sent_.clear();
}

}  // namespace sherd::detail
