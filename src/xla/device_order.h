#pragma once
// XLA's short form of a device order: 0, 1, 2, ... reshaped, transposed and read row-major. "[2,4]T(1,0)" is
// 0, 4, 1, 5, 2, 6, 3, 7.

#include <cstdint>
#include <optional>
#include <vector>

#include "sherd/box.h"

namespace sherd::detail {

struct IotaOrder {
  Dims dims;
  std::vector<int64_t> permutation;
  bool operator==(const IotaOrder&) const = default;
};

/// More devices than this are taken for a mistake, before memory is.
constexpr int64_t kMaxDevices = int64_t{1} << 20;

/// The devices in order. `order` is sound: sizes of at least 1 that multiply to at most kMaxDevices, and a permutation.
std::vector<int64_t> devices_in(const IotaOrder& order);

/// The shortest form of these devices, the one that XLA prints; nothing where they have none.
std::optional<IotaOrder> iota_order_of(const std::vector<int64_t>& devices);

}  // namespace sherd::detail
