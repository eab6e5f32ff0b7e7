#include "xla/check_sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"
#include "xla/device_order.h"

namespace sherd::detail {

std::string sharding_problem(const XlaSharding& sharding) {
  const bool tiled = sharding.kind == XlaSharding::Kind::tiled;
  const bool maximal = sharding.kind == XlaSharding::Kind::maximal;
  if (!tiled && !(sharding.tiles.empty() && sharding.subgroups.empty())) return "only a tiled sharding has tiles";
  if (!tiled && !maximal) return sharding.devices.empty() ? "" : "only tiled and maximal shardings name devices";
  if (maximal && sharding.devices.size() != 1) return "a maximal sharding names one device";
  if (tiled && sharding.tiles.empty()) return "a tiled sharding has at least one dim";
  if (sharding.subgroups.size() > sharding.tiles.size()) return "there are more subgroups than dims";
  int64_t count = 1;
  for (const int64_t size : sharding.tiles) {
    if (size < 1) return fmt::format("a dim of {} tiles", size);
    if (__builtin_mul_overflow(count, size, &count) || count > kMaxDevices)
      return fmt::format("more tiles than the {} that can be", kMaxDevices);
  }
  if (count != static_cast<int64_t>(sharding.devices.size()))
    return fmt::format("{} device{} for {} tile{}", sharding.devices.size(), sharding.devices.size() == 1 ? "" : "s",
                       count, count == 1 ? "" : "s");
  std::vector<int64_t> sorted = sharding.devices;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0) return fmt::format("device {} is negative", sorted.front());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  return twice == sorted.end() ? "" : fmt::format("device {} is named twice", *twice);
}

void check_sharding(std::string_view operation, const XlaSharding& sharding) {
  const std::string problem = sharding_problem(sharding);
  if (problem.empty()) return;
  throw std::invalid_argument(ErrorText(operation, problem)
                                  .fact("tiles", to_string(sharding.tiles))
                                  .help("parse_xla_sharding(\"{devices=[2,4]<=[8]}\")"));
}

}  // namespace sherd::detail
