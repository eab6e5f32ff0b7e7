#include "sherd/xla_sharding.h"

#include <gtest/gtest.h>

#include "xla/device_order.h"

namespace sherd {
namespace {

using Kind = XlaSharding::Kind;
using Subgroup = XlaSharding::Subgroup;

const Mesh kMesh({{"dp", 2}, {"tp", 4}});

std::string text(const Placements& placements, const Dims& shape, const Mesh& mesh = kMesh) {
  return to_string(xla_sharding({mesh, shape, placements}));
}

TEST(XlaShardingTest, WhatJaxPrintsForTheSamePlacements) {
  EXPECT_EQ(text({Shard(0), Shard(1)}, {8, 8}), "{devices=[2,4]<=[8]}");
  EXPECT_EQ(text({Shard(1), Shard(0)}, {8, 8}), "{devices=[4,2]<=[2,4]T(1,0)}");
  EXPECT_EQ(text({Shard(0), Shard(0)}, {8, 8}), "{devices=[8,1]<=[8]}");
  EXPECT_EQ(text({StridedShard(0, 4), Shard(0)}, {8, 8}), "{devices=[8,1]<=[2,4]T(1,0)}");
  EXPECT_EQ(text({Replicate(), Replicate()}, {8, 8}), "{replicated}");
  EXPECT_EQ(text({Replicate(), Shard(1)}, {8, 8}), "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
  EXPECT_EQ(text({Shard(0), Partial()}, {8, 8}), "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}");
  EXPECT_EQ(text({Partial(), Partial()}, {}), "{unreduced}");
}

TEST(XlaShardingTest, DevicesWithoutIotaFormAreListed) {
  EXPECT_EQ(text({Shard(0)}, {8}, Mesh({{"", 4}}, {0, 2, 3, 1})), "{devices=[4]0,2,3,1}");
  EXPECT_EQ(text({Shard(0)}, {8}, Mesh({{"", 4}}, {0, 2, 1, 3})), "{devices=[4]<=[2,2]T(1,0)}");
  EXPECT_EQ(text({Shard(0)}, {8}, Mesh({{"", 2}}, {4, 5})), "{devices=[2]4,5}");
}

TEST(XlaShardingTest, AnAxisOfSizeOneLeavesNoTrace) {
  EXPECT_EQ(text({Shard(0), Shard(1), Partial(ReduceOp::max)}, {8, 8}, Mesh({{"", 1}, {"", 4}, {"", 1}})),
            "{devices=[1,4]<=[4]}");
  EXPECT_EQ(text({Shard(0)}, {8}, Mesh({{"", 1}})), "{replicated}");
}

TEST(XlaShardingTest, IotaOrders) {
  using detail::devices_in;
  using detail::iota_order_of;
  EXPECT_EQ(devices_in({{2, 4}, {1, 0}}), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(iota_order_of({0, 4, 1, 5, 2, 6, 3, 7}), (detail::IotaOrder{{2, 4}, {1, 0}}));
  EXPECT_EQ(iota_order_of({0}), (detail::IotaOrder{{1}, {0}}));
  // XLA's own examples of canonical forms.
  EXPECT_EQ(iota_order_of(devices_in({{3, 4, 5}, {1, 2, 0}})), (detail::IotaOrder{{3, 20}, {1, 0}}));
  EXPECT_EQ(iota_order_of(devices_in({{3, 4, 5}, {2, 0, 1}})), (detail::IotaOrder{{12, 5}, {1, 0}}));
  EXPECT_EQ(iota_order_of(devices_in({{3, 4, 5}, {2, 1, 0}})), (detail::IotaOrder{{3, 4, 5}, {2, 1, 0}}));
  EXPECT_EQ(iota_order_of(devices_in({{1, 3, 1, 4, 1, 5}, {4, 3, 2, 5, 1, 0}})), (detail::IotaOrder{{3, 20}, {1, 0}}));
  for (const std::vector<int64_t>& devices :
       {std::vector<int64_t>{1, 0}, {0, 2}, {0, 2, 3, 1}, {0, 1, 3, 2}, {0, 1, 2, 4}, {0, 3, 1, 4, 2, 9}, {}})
    EXPECT_EQ(iota_order_of(devices), std::nullopt);
}

TEST(XlaShardingTest, TextsAreReadInBothForms) {
  const XlaSharding listed = parse_xla_sharding("{devices=[2,2]0,2,1,3}");
  EXPECT_EQ(listed.kind, Kind::tiled);
  EXPECT_EQ(listed.devices, (std::vector<int64_t>{0, 2, 1, 3}));
  EXPECT_EQ(parse_xla_sharding(" { devices = [ 2 , 2 ] <= [2,2] T ( 1 , 0 ) } "), listed);
  EXPECT_EQ(parse_xla_sharding("{devices=[2,2]<=[2,2]}"), parse_xla_sharding("{devices=[2,2]<=[4]}"));
  EXPECT_EQ(parse_xla_sharding("{maximal device=3}").devices, (std::vector<int64_t>{3}));
  EXPECT_EQ(parse_xla_sharding("{device=3 maximal}"), parse_xla_sharding("{maximal device=3}"));
  const XlaSharding groups = parse_xla_sharding("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}");
  EXPECT_EQ(groups.subgroups, (std::vector{Subgroup::manual, Subgroup::replicated}));
  EXPECT_EQ(groups.ndim(), 2);
  EXPECT_EQ(parse_xla_sharding("{last_tile_dims={replicated} devices=[2,2]<=[4]}"),
            parse_xla_sharding("{devices=[2,2]<=[4] last_tile_dim_replicate}"));
}

TEST(XlaShardingTest, BytesAreThoseOfXla) {
  const auto bytes = [](const char* text) { return to_op_sharding(parse_xla_sharding(text)); };
  using namespace std::string_literals;
  // As printed by jaxlib 0.10.2's HloSharding.to_proto().SerializeToString().
  const std::pair<const char*, std::string> known[] = {
      {"{replicated}", ""s},
      {"{maximal device=3}", "\x08\x01\"\x01\x03"s},
      {"{manual}", "\x08\x04"s},
      {"{unknown}", "\x08\x05"s},
      {"{unreduced}", "\x08\x06"s},
      {"{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}",
       "\x08\x03\x1a\x03\x02\x01\x04"s + "B\x01\x06J\x01\x08R\x01\x00"s},
      {"{devices=[2,2]<=[4] last_tile_dim_replicate}", "\x08\x03\x1a\x02\x02\x02"s + "0\x01J\x01\x04R\x01\x00"s},
  };
  for (const auto& [text, message] : known) {
    EXPECT_EQ(bytes(text), message) << text;
    EXPECT_EQ(to_string(parse_op_sharding(message)), text);
  }
  EXPECT_EQ(bytes("{devices=[3]0,2,1}"), "\x08\x03\x1a\x01\x03\"\x03"s + "\x00\x02\x01"s);
  // Numbers one by one, and fields that are not read: tile_shape, metadata, the shard group.
  EXPECT_EQ(to_string(parse_op_sharding("\x12\x02zz\x08\x03\x18\x02 \x01 \x00:\x01x\x58\x01`\x07h\x01"s)),
            "{devices=[2]1,0}");
}

TEST(XlaShardingTest, BoxesOfDevices) {
  const auto box = [](const char* text, const Dims& shape, int64_t device) {
    return to_string(xla_box(parse_xla_sharding(text), shape, device));
  };
  EXPECT_EQ(box("{devices=[2,2]<=[4]}", {5, 4}, 3), "[3:5, 2:4]");
  EXPECT_EQ(box("{devices=[4]<=[4]}", {5}, 3), "[5:5]");
  EXPECT_EQ(box("{devices=[2,2]<=[4] last_tile_dim_replicate}", {4}, 1), "[0:2]");
  EXPECT_EQ(box("{replicated}", {4, 4}, 17), "[0:4, 0:4]");
  EXPECT_EQ(box("{maximal device=2}", {4}, 2), "[0:4]");
}

TEST(XlaShardingTest, PlacementsComeBack) {
  const auto placements = [](const char* text, const Dims& shape, const Mesh& mesh = kMesh) {
    return to_string(placements_of(parse_xla_sharding(text), mesh, shape));
  };
  EXPECT_EQ(placements("{devices=[2,4]<=[8]}", {8, 8}), "(S(0), S(1))");
  EXPECT_EQ(placements("{devices=[8,1]<=[2,4]T(1,0)}", {8, 8}), "(S(0, split=4), S(0))");
  EXPECT_EQ(placements("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", {8, 8}), "(S(0), P(sum))");
  EXPECT_EQ(placements("{replicated}", {8, 8}), "(R, R)");
  EXPECT_EQ(placements("{maximal device=3}", {8}, Mesh({{"", 1}}, {3})), "(R)");
  // Who is which among those that hold the same does not matter.
  EXPECT_EQ(placements("{devices=[2,4]3,1,0,2,7,5,6,4 last_tile_dim_replicate}", {8}), "(S(0), R)");
  EXPECT_EQ(placements("{devices=[2]5,3}", {8}, Mesh({{"", 2}}, {5, 3})), "(S(0))");
}

TEST(XlaShardingTest, UnevenDimsOfSeveralAxes) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  // 5 rows: DTensor cuts 3 + 2, then 2 + 1 and 1 + 1; XLA 2 + 2 + 1 + 0.
  const Placements ragged = placements_of(parse_xla_sharding("{devices=[4]<=[4]}"), mesh, {5});
  EXPECT_EQ(to_string(ragged), "(S(0, cuts=0:4:5), S(0, cuts=0:2:4:5:5))");
  EXPECT_EQ(text(ragged, {5}, mesh), "{devices=[4]<=[4]}");
  // 7 rows: both cut 2 + 2 + 2 + 1.
  EXPECT_EQ(text({Shard(0), Shard(0)}, {7}, mesh), "{devices=[4]<=[4]}");
  // 2 rows: they lie at (0, 0) and (1, 0), as if tp had cut first.
  EXPECT_EQ(text({Shard(0), Shard(0)}, {2}, mesh), "{devices=[4]<=[2,2]T(1,0)}");
  EXPECT_EQ(to_string(placements_of(parse_xla_sharding("{devices=[4]<=[2,2]T(1,0)}"), mesh, {2})), "(S(0), S(0))");
}

}  // namespace
}  // namespace sherd
