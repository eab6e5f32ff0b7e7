#include <fmt/format.h>

#include <stdexcept>

#include "sherd/convert.h"
#include "sherd/error.h"

namespace sherd {
namespace {

int64_t dim_of(const Placement& placement) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.dim; }) return kind.dim;
        return int64_t{-1};
      },
      placement);
}

}  // namespace

RankLayouts laid_out(const Mesh& mesh, std::vector<std::pair<std::string, Placements>> placements) {
  return {mesh,
          [placements = std::move(placements), axes = mesh.shape().size()](const std::string& name, const Dims& size) {
            Placements found(axes, Replicate());
            for (const auto& [pattern, placed] : placements) {
              if (!matches(name, pattern)) continue;
              found = placed;
              break;
            }
            for (Placement& placement : found) {
              if (dim_of(placement) >= static_cast<int64_t>(size.size())) placement = Replicate();
            }
            return found;
          }};
}

RankLayouts sharded_over(int64_t ranks) {
  if (ranks < 1) {
    throw std::invalid_argument(
        ErrorText("reshard", "the number of ranks is less than one").fact("ranks", fmt::to_string(ranks)));
  }
  RankLayouts layouts;
  layouts.mesh = parse_mesh(fmt::format("[{}]", ranks));
  layouts.placements = [](const std::string&, const Dims& size) {
    return size.empty() ? Placements{Replicate()} : Placements{Shard(0)};
  };
  return layouts;
}

}  // namespace sherd
