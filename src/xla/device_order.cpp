#include "xla/device_order.h"

#include <algorithm>
#include <cstddef>

namespace sherd::detail {
namespace {

// An axis along which the device id grows by `stride`.
struct Axis {
  int64_t size = 1;
  int64_t stride = 1;
};

// Axes from the outermost to the innermost, read off the first device of each block: neighbours that could be one axis
// are one, which is what makes the form the shortest.
std::optional<std::vector<Axis>> axes_of(const std::vector<int64_t>& devices) {
  const auto count = static_cast<int64_t>(devices.size());
  const auto at = [&](int64_t i) { return devices[static_cast<size_t>(i)]; };
  std::vector<Axis> axes;
  for (int64_t block = 1; block < count;) {
    Axis axis{1, at(block)};
    if (axis.stride <= 0 || axis.stride >= count) return std::nullopt;
    while (axis.size * block < count && at(axis.size * block) == axis.size * axis.stride) ++axis.size;
    block *= axis.size;
    if (axis.size < 2 || count % block != 0) return std::nullopt;
    axes.insert(axes.begin(), axis);
  }
  return axes;
}

}  // namespace

std::vector<int64_t> devices_in(const IotaOrder& order) {
  Dims strides(order.dims.size());
  int64_t count = 1;
  for (size_t d = order.dims.size(); d-- > 0;) {
    strides[d] = count;
    count *= order.dims[d];
  }
  std::vector<int64_t> devices = {0};
  devices.reserve(static_cast<size_t>(count));
  for (size_t i = order.permutation.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order.permutation[i]);
    const size_t block = devices.size();
    for (int64_t step = 1; step < order.dims[d]; ++step) {
      for (size_t k = 0; k < block; ++k) devices.push_back(devices[k] + step * strides[d]);
    }
  }
  return devices;
}

std::optional<IotaOrder> iota_order_of(const std::vector<int64_t>& devices) {
  if (devices.empty() || devices.front() != 0) return std::nullopt;
  const auto axes = axes_of(devices);
  if (!axes) return std::nullopt;
  std::vector<int64_t> by_stride(axes->size());
  for (size_t i = 0; i < by_stride.size(); ++i) by_stride[i] = static_cast<int64_t>(i);
  const auto axis = [&](int64_t i) { return (*axes)[static_cast<size_t>(i)]; };
  std::sort(by_stride.begin(), by_stride.end(), [&](int64_t a, int64_t b) { return axis(a).stride > axis(b).stride; });
  IotaOrder order;
  order.permutation.resize(axes->size());
  for (size_t d = 0; d < by_stride.size(); ++d) {
    order.dims.push_back(axis(by_stride[d]).size);
    order.permutation[static_cast<size_t>(by_stride[d])] = static_cast<int64_t>(d);
  }
  if (order.dims.empty()) order = {{1}, {0}};
  // The axes were read off a few devices: the others must agree.
  if (devices_in(order) != devices) return std::nullopt;
  return order;
}

}  // namespace sherd::detail
