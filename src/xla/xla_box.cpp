#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/xla_sharding.h"
#include "xla/check_sharding.h"

namespace sherd {

Box xla_box(const XlaSharding& sharding, const Dims& shape, int64_t device) {
  using Kind = XlaSharding::Kind;
  constexpr const char* kOperation = "xla_box";
  detail::check_sharding(kOperation, sharding);
  const auto refuse = [&](const char* problem, const char* help) {
    throw std::invalid_argument(ErrorText(kOperation, problem)
                                    .fact("sharding", to_string(sharding))
                                    .fact("shape", to_string(shape))
                                    .fact("device", std::to_string(device))
                                    .help(help));
  };
  if (sharding.kind == Kind::manual || sharding.kind == Kind::unknown)
    refuse("the sharding does not say who holds what", "a sharding with devices=, or {replicated}");
  Box box{Dims(shape.size(), 0), shape};
  if (sharding.kind == Kind::replicated || sharding.kind == Kind::unreduced) return box;
  const auto found = std::find(sharding.devices.begin(), sharding.devices.end(), device);
  if (found == sharding.devices.end()) refuse("the sharding gives the device nothing", "a device that it names");
  if (sharding.kind == Kind::maximal) return box;
  if (sharding.ndim() != static_cast<int64_t>(shape.size()))
    refuse("the sharding is for another number of dims", "a shape with as many dims as the sharding has tiles");
  int64_t index = found - sharding.devices.begin();
  for (size_t d = sharding.tiles.size(); d-- > 0;) {
    const int64_t tiles = sharding.tiles[d], tile = index % tiles;
    index /= tiles;
    if (d >= shape.size()) continue;
    const Run run = chunk(shape[d], tiles, tile);
    box.offset[d] = run.offset;
    box.size[d] = run.size;
  }
  return box;
}

}  // namespace sherd
