// The whole text of every error on the way to XLA and back.

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "sherd/xla_sharding.h"

namespace sherd {
namespace {

const Mesh kMesh({{"dp", 2}, {"tp", 4}});

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

void expect_malformed(const std::string& text, int place, const std::string& problem) {
  EXPECT_EQ(error_of([&] { parse_xla_sharding(text); }),
            "parse_xla_sharding: " + problem + "\n  text: \"" + text + "\"\n  at: character " + std::to_string(place) +
                "\n  help: {replicated}, {maximal device=0}, {devices=[2,4]<=[8]}, {devices=[2,2]0,2,1,3}, "
                "{devices=[2,1,2]<=[4] last_tile_dim_replicate}");
}

TEST(XlaTextErrors, TheTextIsNoSharding) {
  expect_malformed("", 0, "expected '{'");
  expect_malformed("replicated", 0, "expected '{'");
  expect_malformed("{", 1, "expected a word of a sharding, or '}'");
  expect_malformed("{}", 1, "a tuple of shardings: one tensor has one");
  expect_malformed("{{replicated}, {replicated}}", 1, "a tuple of shardings: one tensor has one");
  expect_malformed("{replicated", 11, "expected a word of a sharding, or '}'");
  expect_malformed("{replicated} x", 13, "expected the end of the text");
  expect_malformed("{sharded}", 1, "\"sharded\" is no word of a sharding");
  expect_malformed("{mesh['a'=2]}", 1, "\"mesh\" is no word of a sharding");
  expect_malformed("{last_tile_dim_replicate}", 25, "the sharding says nothing of devices");
}

TEST(XlaTextErrors, WordsThatDoNotGoTogether) {
  expect_malformed("{replicated manual}", 12, "a sharding is of one kind");
  expect_malformed("{replicated devices=[2]<=[2]}", 12, "a sharding is of one kind");
  expect_malformed("{devices=[2]<=[2] replicated}", 18, "a sharding is of one kind");
  expect_malformed("{replicated last_tile_dim_replicate}", 12, "subgroups without devices=");
  expect_malformed("{devices=[2]<=[2] last_tile_dim_replicate last_tile_dims={manual}}", 42,
                   "the subgroups are given twice");
  expect_malformed("{devices=[2]<=[2] last_tile_dims={tiled}}", 34, "\"tiled\" is no kind of subgroup");
  expect_malformed("{devices=[2]<=[2] last_tile_dims={}}", 34, "expected a kind of subgroup");
  expect_malformed("{devices=[2]<=[2] last_tile_dims={manual, manual}}", 50, "there are more subgroups than dims");
  expect_malformed("{maximal}", 9, "maximal without device=");
  expect_malformed("{replicated device=0}", 21, "device= without maximal");
  expect_malformed("{maximal device=0 device=1}", 18, "a second device");
  expect_malformed("{maximal device=-1}", 19, "device -1 is negative");
}

TEST(XlaTextErrors, Devices) {
  expect_malformed("{devices=2}", 9, "expected '['");
  expect_malformed("{devices=[]0}", 10, "expected the number of tiles");
  expect_malformed("{devices=[2,0]0}", 12, "a size below 1");
  expect_malformed("{devices=[2}", 11, "expected ']'");
  expect_malformed("{devices=[2]}", 12, "expected a device, or '<='");
  expect_malformed("{devices=[2]0,}", 14, "expected a device, or '<='");
  expect_malformed("{devices=[2,2]0,1,2}", 20, "3 devices for 4 tiles");
  expect_malformed("{devices=[1]0,1}", 16, "2 devices for 1 tile");
  expect_malformed("{devices=[2,2]0,1,1,2}", 22, "device 1 is named twice");
  expect_malformed("{devices=[2]0,-1}", 17, "device -1 is negative");
  expect_malformed("{devices=[99999999999999999999]0}", 10, "the number does not fit in 64 bits");
  expect_malformed("{devices=[1048577]<=[1048577]}", 10, "more devices than the 1048576 that can be");
  expect_malformed("{devices=[2,9223372036854775807]0}", 12, "more devices than the 1048576 that can be");
}

TEST(XlaTextErrors, IotaForm) {
  expect_malformed("{devices=[4]<[4]}", 13, "expected '='");
  expect_malformed("{devices=[4]<=[]}", 15, "expected a size");
  expect_malformed("{devices=[4]<=[8]}", 18, "8 devices for 4 tiles");
  expect_malformed("{devices=[4]<=[2,2]T}", 20, "expected '('");
  expect_malformed("{devices=[4]<=[2,2]Tx(1,0)}", 19, "expected T(...)");
  expect_malformed("{devices=[4]<=[2,2]T(1)}", 19, "1 dims are put in order, of 2");
  expect_malformed("{devices=[4]<=[2,2]T(1,2)}", 23, "there is no dim 2");
  expect_malformed("{devices=[4]<=[2,2]T(1,1)}", 23, "dim 1 stands twice");
}

TEST(XlaBytesErrors, BytesThatAreNoOpSharding) {
  using namespace std::string_literals;
  const auto expect = [](const std::string& bytes, int place, const std::string& problem) {
    EXPECT_EQ(error_of([&] { parse_op_sharding(bytes); }),
              "parse_op_sharding: " + problem + "\n  bytes: " + std::to_string(bytes.size()) + "\n  at: byte " +
                  std::to_string(place) + "\n  help: the bytes of one xla.OpSharding: sharding.SerializeAsString()");
  };
  const std::string tiled = "\x08\x03\x1a\x01\x02";
  expect("\x08", 0, "the bytes end inside a field");
  expect("\x08\x03\x1a\x05\x02", 2, "the bytes end inside a field");
  expect("\x0a\x01x", 0, "a field of another type");
  expect("\x19zzzzzzzz", 0, "a field of another type");
  expect("\x08" + std::string(10, '\xff'), 0, "a number of more than 64 bits");
  expect("\x7b", 0, "no message of protobuf");
  expect("\x2a\x00"s, 0, "a tuple of shardings: one tensor has one");
  expect("\x08\x02", 2, "a tuple of shardings: one tensor has one");
  expect("r\x00"s, 0, "a sharding with named axes");
  expect("\x08\x09", 2, "there is no type 9");
  expect("\x08\x01", 2, "a maximal sharding names one device");
  expect("\x08\x03", 2, "a tiled sharding has at least one dim");
  expect(tiled, 5, "0 devices for 2 tiles");
  expect(tiled + "\"\x02\x01\x01", 9, "device 1 is named twice");
  expect(tiled + "\"\x02\x00\x01J\x01\x02R\x01\x00"s, 15, "devices both one by one and in iota form");
  expect(tiled + "J\x01\x02", 8, "0 dims are put in order, of 1");
  expect(tiled + "J\x01\x02R\x01\x01", 11, "there is no dim 1");
  expect(tiled + "J\x02\x02\x01R\x02\x00\x00"s, 13, "dim 0 stands twice");
  expect(tiled + "J\x01\x00R\x01\x00"s, 11, "a size below 1");
  expect(tiled + "J\x04\xff\xff\xff\x7fR\x01\x00"s, 14, "more devices than the 1048576 that can be");
  expect(tiled + "0\x01" + "B\x01\x04" + "J\x01\x02R\x01\x00"s, 16, "the subgroups are given twice");
  expect(tiled + "B\x01\x05", 8, "there is no subgroup of type 5");
}

TEST(XlaShardingErrors, APartialThatIsNoSum) {
  EXPECT_EQ(error_of([] {
              xla_sharding({kMesh, {8}, {Shard(0), Partial(ReduceOp::max)}});
            }),
            "xla_sharding: XLA knows unreduced sums only\n"
            "  placement: P(max) on axis tp\n"
            "  help: redistribute(x, {Shard(0), Replicate()})");
}

TEST(XlaShardingErrors, UnevenDimsOfSeveralAxes) {
  EXPECT_EQ(error_of([] {
              xla_sharding({Mesh({{"dp", 2}, {"tp", 2}}), {5}, {Shard(0), Shard(0)}});
            }),
            "xla_sharding: XLA cuts dim 0 otherwise\n"
            "  tensor: [5@dp@tp] on [dp=2, tp=2]\n"
            "  rank 1 holds: rows 2:3\n"
            "  XLA gives it: rows 2:4\n"
            "  help: redistribute(x, {Ragged(0, {0, 4, 5}), Ragged(0, {0, 2, 4, 5, 5})})");
  EXPECT_EQ(error_of([] {
              xla_sharding({Mesh({{"dp", 8}, {"tp", 4}}), {4, 100}, {Shard(1), Shard(1)}});
            }),
            "xla_sharding: XLA cuts dim 1 otherwise\n"
            "  tensor: [4, 100@dp@tp] on [dp=8, tp=4]\n"
            "  rank 3 holds: rows 12:13\n"
            "  XLA gives it: rows 12:16\n"
            "  help: pad dim 1 to 128, a multiple of 32");
}

TEST(XlaShardingErrors, CutsThatXlaDoesNotMake) {
  EXPECT_EQ(error_of([] {
              xla_sharding({Mesh({{"", 2}}), {8}, {StridedShard(0, 2)}});
            }),
            "xla_sharding: XLA cuts dim 0 otherwise\n"
            "  tensor: [8@0(split=2)] on [2]\n"
            "  rank 0 holds: rows 0:2, 4:6\n"
            "  XLA gives it: rows 0:4\n"
            "  help: redistribute(x, {Shard(0)})");
  EXPECT_EQ(error_of([] {
              xla_sharding({Mesh({{"", 2}}), {8}, {Ragged(0, {0, 0, 8})}});
            }),
            "xla_sharding: XLA cuts dim 0 otherwise\n"
            "  tensor: [8@0(cuts=0:0:8)] on [2]\n"
            "  rank 0 holds: no rows\n"
            "  XLA gives it: rows 0:4\n"
            "  help: redistribute(x, {Shard(0)})");
}

TEST(XlaShardingErrors, PlacementsAreChecked) {
  EXPECT_EQ(error_of([] {
              xla_sharding({kMesh, {8}, {Shard(0)}});
            }),
            "xla_sharding: 1 placement for a mesh of 2 axes\n"
            "  placements: (S(0))\n"
            "  mesh: [dp=2, tp=4]\n"
            "  help: xla_sharding(x, mesh, {Shard(0), Replicate()})");
}

void expect_misfit(const std::string& text, const Dims& shape, const std::string& problem, const std::string& help,
                   const Mesh& mesh = kMesh) {
  EXPECT_EQ(error_of([&] { placements_of(parse_xla_sharding(text), mesh, shape); }),
            "placements_of: " + problem + "\n  sharding: " + text + "\n  mesh: " + to_string(mesh) +
                "\n  shape: " + to_string(shape) + "\n  help: " + help);
}

TEST(XlaShardingErrors, TheShardingDoesNotFitTheMesh) {
  const std::string all = "a mesh of all devices of the sharding";
  const std::string axes = "a mesh whose axes are those that the sharding was made of";
  expect_misfit("{devices=[4]<=[4]}", {8}, "4 devices for a mesh of 8", all);
  expect_misfit("{devices=[2]0,2}", {8}, "rank 1 of the mesh is no device of the sharding", all, Mesh({{"", 2}}));
  expect_misfit("{devices=[8]0,1,2,3,4,5,7,6}", {8}, "no axes of the mesh make these tiles: rank 6 does not fit", axes);
  expect_misfit("{devices=[8]1,0,2,3,4,5,6,7}", {8}, "no axes of the mesh make these tiles: rank 0 does not fit", axes);
  expect_misfit("{devices=[2,4]<=[4,2]T(1,0)}", {8, 8}, "no axes of the mesh make these tiles: rank 0 does not fit",
                axes);
  expect_misfit("{devices=[4,2]<=[8]}", {8, 8}, "no axes of the mesh make these tiles: rank 0 does not fit", axes);
}

TEST(XlaShardingErrors, TheShardingDoesNotFitTheTensor) {
  const std::string help = "a sharding with one number of tiles for each dim, and the subgroups behind them";
  expect_misfit("{devices=[2,4]<=[8]}", {8}, "the sharding is for 2 dims, the tensor has 1", help);
  expect_misfit("{devices=[2,4]<=[8] last_tile_dim_replicate}", {8, 8}, "the sharding is for 1 dims, the tensor has 2",
                help);
  expect_misfit("{devices=[8]<=[2,4]T(1,0)}", {10},
                "no placements cut dim 0 so: it is uneven, and an axis cuts after one to its right", "pad dim 0 to 16");
}

TEST(XlaShardingErrors, ShardingsWithoutPlacements) {
  const std::string help = "a sharding with devices=, or {replicated}";
  expect_misfit("{manual}", {8}, "the sharding does not say who holds what", help);
  expect_misfit("{unknown}", {8}, "the sharding does not say who holds what", help);
  expect_misfit("{maximal device=3}", {8}, "one device holds everything, the others nothing",
                "{replicated}, or a mesh of that device alone");
  expect_misfit("{devices=[2,4]<=[8] last_tile_dims={manual}}", {8}, "no placement says that a program cuts by itself",
                "a sharding without manual subgroups");
}

TEST(XlaShardingErrors, Boxes) {
  const auto expect = [](const std::string& text, const std::string& problem, const std::string& help) {
    EXPECT_EQ(error_of([&] { xla_box(parse_xla_sharding(text), {8}, 5); }),
              "xla_box: " + problem + "\n  sharding: " + text + "\n  shape: [8]\n  device: 5\n  help: " + help);
  };
  expect("{devices=[4]<=[4]}", "the sharding gives the device nothing", "a device that it names");
  expect("{maximal device=0}", "the sharding gives the device nothing", "a device that it names");
  expect("{manual}", "the sharding does not say who holds what", "a sharding with devices=, or {replicated}");
  expect("{devices=[2,4]<=[8]}", "the sharding is for another number of dims",
         "a shape with as many dims as the sharding has tiles");
}

TEST(XlaShardingErrors, AShardingPutTogetherByHand) {
  const auto problem = [](XlaSharding sharding) {
    const std::string text = error_of([&] { to_op_sharding(sharding); });
    EXPECT_EQ(error_of([&] { xla_box(sharding, {8}, 0); }), "xla_box" + text.substr(text.find(':')));
    EXPECT_EQ(error_of([&] { placements_of(sharding, kMesh, {8}); }), "placements_of" + text.substr(text.find(':')));
    return text;
  };
  using Kind = XlaSharding::Kind;
  EXPECT_EQ(problem({.kind = Kind::tiled, .tiles = {2}, .devices = {0}, .subgroups = {}}),
            "to_op_sharding: 1 device for 2 tiles\n"
            "  tiles: [2]\n"
            "  help: parse_xla_sharding(\"{devices=[2,4]<=[8]}\")");
  const auto first_line = [&](XlaSharding sharding) {
    const std::string text = problem(std::move(sharding));
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(first_line({.kind = Kind::replicated, .tiles = {2}, .devices = {}, .subgroups = {}}),
            "to_op_sharding: only a tiled sharding has tiles");
  EXPECT_EQ(first_line({.kind = Kind::manual, .tiles = {}, .devices = {1}, .subgroups = {}}),
            "to_op_sharding: only tiled and maximal shardings name devices");
  EXPECT_EQ(first_line({.kind = Kind::tiled, .tiles = {-1}, .devices = {}, .subgroups = {}}),
            "to_op_sharding: a dim of -1 tiles");
}

}  // namespace
}  // namespace sherd
