// Every layout that XLA can express: the sharding gives each device the rank's box, and text, bytes and placements come
// back. Every other: no order of the axes would have given the boxes.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "fuzz/xla_check.h"
#include "sherd/xla_sharding.h"

namespace sherd {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  template <class T>
  void shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

  Mesh mesh() {
    std::vector<MeshAxis> axes(static_cast<size_t>(1 + below(3)));
    for (MeshAxis& axis : axes) axis.size = 1 + below(4);
    const Mesh mesh(axes);
    if (below(3) > 0) return mesh;
    std::vector<int64_t> ranks = mesh.ranks();
    shuffle(ranks);
    return Mesh(axes, ranks);
  }

  // Axes are given to dims in random order: an axis that cuts after one to its right becomes a StridedShard.
  Layout layout() {
    Layout layout{mesh(), Dims(static_cast<size_t>(below(4))), {}};
    const auto ndim = static_cast<int64_t>(layout.shape.size());
    for (int64_t& size : layout.shape) size = below(3) == 0 ? 12 * below(3) : below(14);
    std::vector<int64_t> axes(static_cast<size_t>(layout.mesh.ndim()));
    std::iota(axes.begin(), axes.end(), 0);
    if (below(2) == 0) shuffle(axes);
    layout.placements.assign(axes.size(), Replicate());
    for (size_t i = 0; i < axes.size(); ++i) {
      Placement& placement = layout.placements[static_cast<size_t>(axes[i])];
      const int64_t kind = below(8);
      if (kind == 0) placement = Partial();
      if (kind < 2 || ndim == 0) continue;
      const int64_t dim = below(ndim);
      int64_t split = kind == 7 ? 1 + below(4) : 1;  // any split, now and then
      for (size_t k = 0; k < i && kind != 7; ++k) {
        const bool cut = sharded_dim(layout.placements[static_cast<size_t>(axes[k])]) == dim;
        if (cut && axes[k] > axes[i]) split *= layout.mesh.size(axes[k]);
      }
      placement = split == 1 ? Placement(Shard(dim)) : Placement(StridedShard(dim, split));
    }
    return layout;
  }

 private:
  std::mt19937 random_;
};

// The rows that a rank holds of each dim, as one run; nothing where they are several.
std::optional<Box> held_box(const Layout& layout, const Dims& coordinate) {
  Box box{local_offset(layout, coordinate), local_shape(layout, coordinate)};
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    int64_t end = box.offset[d];
    for (const Run& run : local_runs(layout, static_cast<int64_t>(d), coordinate)) {
      if (run.offset != end) return std::nullopt;
      end += run.size;
    }
  }
  return box;
}

bool gives_the_boxes(const XlaSharding& sharding, const Layout& layout) {
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    const Dims coordinate = layout.mesh.coordinate_at(i);
    if (held_box(layout, coordinate) != xla_box(sharding, layout.shape, layout.mesh.rank_at(coordinate))) return false;
  }
  return true;
}

// The sharding whose dims count their axes in the order of `axes`.
XlaSharding with_order(const Layout& layout, const std::vector<int64_t>& axes) {
  XlaSharding sharding{.kind = XlaSharding::Kind::tiled, .tiles = {}, .devices = {}, .subgroups = {}};
  std::vector<int64_t> order;
  for (int64_t dim = 0; dim <= static_cast<int64_t>(layout.shape.size()); ++dim) {
    int64_t tiles = 1;
    for (const int64_t axis : axes) {
      const int64_t cut = sharded_dim(layout.placements[static_cast<size_t>(axis)]);
      if ((cut < 0 ? static_cast<int64_t>(layout.shape.size()) : cut) != dim) continue;
      tiles *= layout.mesh.size(axis);
      order.push_back(axis);
    }
    sharding.tiles.push_back(tiles);
  }
  sharding.subgroups = {XlaSharding::Subgroup::replicated};
  Dims coordinate(axes.size(), 0);
  for (int64_t i = 0; i < layout.mesh.size(); ++i) {
    int64_t index = i;
    for (size_t k = order.size(); k-- > 0;) {
      coordinate[static_cast<size_t>(order[k])] = index % layout.mesh.size(order[k]);
      index /= layout.mesh.size(order[k]);
    }
    sharding.devices.push_back(layout.mesh.rank_at(coordinate));
  }
  return sharding;
}

std::optional<XlaSharding> sharding_of(const Layout& layout) {
  try {
    return xla_sharding(layout);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::string name(const Layout& layout) {
  return to_string(TensorText{"f32", layout.shape, layout.placements}, layout.mesh) + " on " + to_string(layout.mesh);
}

TEST(XlaProperty, ALayoutIsExpressedExactlyOrNotAtAll) {
  Draw draw(7);
  int expressed = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Layout layout = draw.layout();
    SCOPED_TRACE(name(layout));
    if (const auto sharding = sharding_of(layout)) {
      ++expressed;
      ASSERT_TRUE(gives_the_boxes(*sharding, layout)) << to_string(*sharding);
      testing::check_sharding_round_trips(*sharding);
      continue;
    }
    ++refused;
    std::vector<int64_t> axes(layout.placements.size());
    std::iota(axes.begin(), axes.end(), 0);
    do {
      ASSERT_FALSE(gives_the_boxes(with_order(layout, axes), layout)) << to_string(with_order(layout, axes));
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
  EXPECT_GT(expressed, 10000);
  EXPECT_GT(refused, 1000);
}

TEST(XlaProperty, PlacementsComeBackWithTheSameBoxes) {
  Draw draw(8);
  int same = 0;
  for (int i = 0; i < 20000; ++i) {
    const Layout layout = draw.layout();
    const auto sharding = sharding_of(layout);
    if (!sharding) continue;
    SCOPED_TRACE(name(layout) + " " + to_string(*sharding));
    Layout back = layout;
    try {
      back.placements = placements_of(*sharding, layout.mesh, layout.shape);
    } catch (const std::invalid_argument& error) {
      // A few rows, counted by XLA in another order than the axes': the only thing that does not come back.
      ASSERT_NE(std::string(error.what()).find("it is uneven, and an axis cuts after one to its right"),
                std::string::npos)
          << error.what();
      continue;
    }
    ++same;
    ASSERT_TRUE(gives_the_boxes(*sharding, back)) << to_string(back.placements);
    for (int64_t axis = 0; axis < layout.mesh.ndim(); ++axis) {
      const auto a = static_cast<size_t>(axis);
      const bool partial = is_partial(layout.placements[a]) && layout.mesh.size(axis) > 1;
      ASSERT_EQ(is_partial(back.placements[a]) && layout.mesh.size(axis) > 1, partial) << to_string(back.placements);
    }
  }
  EXPECT_GT(same, 10000);
}

TEST(XlaProperty, DevicesInAnyOrderSurviveTextAndBytes) {
  Draw draw(9);
  for (int i = 0; i < 5000; ++i) {
    XlaSharding sharding{.kind = XlaSharding::Kind::tiled, .tiles = {}, .devices = {}, .subgroups = {}};
    int64_t count = 1;
    for (int64_t d = 1 + draw.below(4); d > 0; --d) {
      sharding.tiles.push_back(1 + draw.below(4));
      count *= sharding.tiles.back();
    }
    for (int64_t g = draw.below(static_cast<int64_t>(sharding.tiles.size()) + 1); g > 0; --g)
      sharding.subgroups.push_back(static_cast<XlaSharding::Subgroup>(draw.below(3)));
    sharding.devices.resize(static_cast<size_t>(count));
    std::iota(sharding.devices.begin(), sharding.devices.end(), draw.below(2));
    if (draw.below(2)) draw.shuffle(sharding.devices);
    testing::check_sharding_round_trips(sharding);
  }
}

}  // namespace
}  // namespace sherd
