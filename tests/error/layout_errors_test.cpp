// The whole text of every error of the layout room.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/layout.h"

namespace sherd {
namespace {

const Mesh kMesh({{"dp", 2}, {"tp", 4}});

void expect_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected:\n" << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), text);
  }
}

void expect_refused(const Placements& placements, const Dims& shape, const std::string& text,
                    const Mesh& mesh = kMesh) {
  expect_error([&] { checked_placements("distribute_tensor", mesh, shape, placements); }, text);
}

TEST(ErrorTextTest, FactsAreIndentedBelowTheProblem) {
  EXPECT_EQ(ErrorText("mm", "operands differ").fact("lhs", "a\nb").help("fix(x)").str(),
            "mm: operands differ\n"
            "  lhs: a\n"
            "    b\n"
            "  help: fix(x)");
}

TEST(PlacementErrors, NumberOfPlacements) {
  expect_refused({Shard(0)}, {4, 6},
                 "distribute_tensor: 1 placement for a mesh of 2 axes\n"
                 "  placements: (S(0))\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0), Replicate()})");
  expect_refused({Shard(0), Replicate()}, {4, 6},
                 "distribute_tensor: 2 placements for a mesh of 1 axis\n"
                 "  placements: (S(0), R)\n"
                 "  mesh: [4]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0)})",
                 Mesh({{"", 4}}));
}

TEST(PlacementErrors, DimOutOfRange) {
  expect_refused({Replicate(), Shard(2)}, {4, 6},
                 "distribute_tensor: dim 2 is out of range for a tensor of 2 dims\n"
                 "  placement: S(2) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [4, 6]\n"
                 "  help: distribute_tensor(x, mesh, {Replicate(), Shard(1)})");
  expect_refused({StridedShard(-2, 2), Partial()}, {4},
                 "distribute_tensor: dim -2 is out of range for a tensor of 1 dim\n"
                 "  placement: S(-2, split=2) on axis dp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [4]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0), Partial()})");
}

TEST(PlacementErrors, ShardedScalar) {
  expect_refused({Replicate(), Shard(0)}, {},
                 "distribute_tensor: a scalar cannot be sharded\n"
                 "  placement: S(0) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: []\n"
                 "  help: distribute_tensor(x, mesh, {Replicate(), Replicate()})");
}

TEST(PlacementErrors, NegativeSize) {
  expect_refused({Replicate(), Replicate()}, {4, -1},
                 "distribute_tensor: a size of the shape is negative\n"
                 "  shape: [4, -1]\n"
                 "  help: sizes are 0 or more");
}

TEST(PlacementErrors, SplitBelowOne) {
  expect_refused({StridedShard(0, 0), Replicate()}, {4},
                 "distribute_tensor: split is 0, but must be at least 1\n"
                 "  placement: S(0, split=0) on axis dp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [4]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0), Replicate()})");
}

TEST(PlacementErrors, NumberOfCuts) {
  expect_refused({Replicate(), Ragged(0, {0, 3, 10})}, {10},
                 "distribute_tensor: 3 cuts for 4 pieces, which need 5\n"
                 "  placement: S(0, cuts=0:3:10) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [10]\n"
                 "  help: distribute_tensor(x, mesh, {Replicate(), Ragged(0, {0, 3, 6, 9, 10})})");
  expect_refused({Shard(0), Ragged(0, {0, 1, 2, 3, 10})}, {10},
                 "distribute_tensor: 5 cuts for 8 pieces, which need 9\n"
                 "  placement: S(0, cuts=0:1:2:3:10) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [10]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0), Ragged(0, {0, 2, 4, 5, 5, 7, 9, 10, 10})})");
}

TEST(PlacementErrors, LongListsOfCutsAreShortened) {
  expect_refused({Ragged(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100})}, {100},
                 "distribute_tensor: 11 cuts for 64 pieces, which need 65\n"
                 "  placement: S(0, cuts=0:1:2:3:4:5:6:...:100) on axis dp\n"
                 "  mesh: [dp=64]\n"
                 "  shape: [100]\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0)})",
                 Mesh({{"dp", 64}}));
}

TEST(PlacementErrors, CutsThatDoNotAscend) {
  expect_refused({Ragged(0, {0, 12, 10}), Replicate()}, {10},
                 "distribute_tensor: the cuts do not ascend\n"
                 "  placement: S(0, cuts=0:12:10) on axis dp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [10]\n"
                 "  help: distribute_tensor(x, mesh, {Ragged(0, {0, 5, 10}), Replicate()})");
}

TEST(PlacementErrors, CutsThatDoNotSpanTheDim) {
  expect_refused({Ragged(0, {0, 5, 8}), Replicate()}, {10},
                 "distribute_tensor: the cuts go from 0 to 8, but the dim from 0 to 10\n"
                 "  placement: S(0, cuts=0:5:8) on axis dp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [10]\n"
                 "  help: distribute_tensor(x, mesh, {Ragged(0, {0, 5, 10}), Replicate()})");
}

TEST(PlacementErrors, CutsThatDoNotFitWhatIsLeft) {
  expect_refused({Shard(0), Ragged(0, {0, 2, 4, 5, 6, 7, 9, 10, 10})}, {10},
                 "distribute_tensor: the cuts do not fit what the axes to the left leave\n"
                 "  placement: S(0, cuts=0:2:4:5:6:7:9:...:10) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [10]\n"
                 "  coordinate: [0, 0]\n"
                 "  the axes to the left leave: 5 of the rows 0:5\n"
                 "  the cuts give: rows 0:6\n"
                 "  help: distribute_tensor(x, mesh, {Shard(0), Ragged(0, {0, 2, 4, 5, 5, 7, 9, 10, 10})})");
  expect_refused({StridedShard(0, 2), Ragged(0, {0, 1, 2, 3, 4, 5, 6, 7, 8})}, {8},
                 "distribute_tensor: the cuts do not fit what the axes to the left leave\n"
                 "  placement: S(0, cuts=0:1:2:3:4:5:6:...:8) on axis tp\n"
                 "  mesh: [dp=2, tp=4]\n"
                 "  shape: [8]\n"
                 "  coordinate: [0, 0]\n"
                 "  the axes to the left leave: 4 of the rows 0:6\n"
                 "  the cuts give: rows 0:4\n"
                 "  help: distribute_tensor(x, mesh, {StridedShard(0, 2), Shard(0)})");
}

TEST(PlacementErrors, PartialsOfTwoKinds) {
  expect_refused({Partial(), Partial(ReduceOp::max)}, {4},
                 "distribute_tensor: partials of two kinds cannot stand together\n"
                 "  axis dp: P(sum)\n"
                 "  axis tp: P(max)\n"
                 "  help: distribute_tensor(x, mesh, {Partial(), Partial()})");
}

TEST(PlacementErrors, TheHelpIsAcceptedWhenPasted) {
  EXPECT_NO_THROW(checked_placements("x", kMesh, {10}, {Shard(0), Ragged(0, {0, 2, 4, 5, 5, 7, 9, 10, 10})}));
  EXPECT_NO_THROW(checked_placements("x", kMesh, {10}, {Replicate(), Ragged(0, {0, 3, 6, 9, 10})}));
}

TEST(MeshErrors, BadAxes) {
  expect_error(
      [] {
        Mesh({{"dp", 2}, {"dp", 4}});
      },
      "Mesh: two axes are called dp\n"
      "  axes: [dp=2, dp=4]\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
  expect_error(
      [] {
        Mesh({{"dp", 2}, {"", 4}});
      },
      "Mesh: some axes have names and some have none\n"
      "  axes: [dp=2, 4]\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
  expect_error(
      [] {
        Mesh({{"dp", 0}});
      },
      "Mesh: axis dp has size 0\n"
      "  axes: [dp=0]\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
  expect_error(
      [] {
        Mesh({{"d p", 2}});
      },
      "Mesh: \"d p\" cannot be an axis name\n"
      "  axes: [d p=2]\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
  expect_error(
      [] {
        Mesh({{"a", int64_t{1} << 40}, {"b", int64_t{1} << 40}});
      },
      "Mesh: the number of ranks does not fit in 64 bits\n"
      "  axes: [a=1099511627776, b=1099511627776]\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
}

TEST(MeshErrors, BadRanks) {
  expect_error(
      [] {
        Mesh({{"dp", 4}}, {0, 1, 2});
      },
      "Mesh: 3 ranks for a mesh of 4\n"
      "  axes: [dp=4]\n"
      "  ranks: {0-2}\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 2}}, {0, 1, 2, 3})");
  expect_error(
      [] {
        Mesh({{"dp", 4}}, {0, 1, 3, 1});
      },
      "Mesh: overlapping ranks: rank 1 stands at two places\n"
      "  axes: [dp=4]\n"
      "  ranks: {0-1, 3, 1}\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 2}}, {0, 1, 2, 3})");
  expect_error(
      [] {
        Mesh({{"dp", 2}}, {0, -1});
      },
      "Mesh: rank -1 is negative\n"
      "  axes: [dp=2]\n"
      "  ranks: {0, -1}\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 2}}, {0, 1, 2, 3})");
}

TEST(MeshErrors, UnknownAxis) {
  expect_error([] { kMesh.axis("pp"); },
               "axis: there is no axis called \"pp\"\n"
               "  mesh: [dp=2, tp=4]\n"
               "  axes: dp, tp\n"
               "  help: mesh.axis(\"dp\")");
  expect_error(
      [] {
        Mesh({{"", 2}}).axis("pp");
      },
      "axis: there is no axis called \"pp\"\n"
      "  mesh: [2], whose axes have no names\n"
      "  help: Mesh({{\"dp\", 2}, {\"tp\", 4}})");
}

TEST(MeshErrors, Slices) {
  expect_error([] { kMesh.slice(Dims{2}, 0); },
               "slice: there is no axis 2\n"
               "  mesh: [dp=2, tp=4]\n"
               "  help: axes are numbered from 0 to 1");
  expect_error(
      [] {
        kMesh.slice(Dims{1, 1}, 0);
      },
      "slice: axis tp is asked for twice\n"
      "  mesh: [dp=2, tp=4]\n"
      "  help: mesh.slice({1}, 0)");
  expect_error([] { kMesh.slice(Dims{1}, 8); },
               "slice: rank 8 is not in the mesh\n"
               "  mesh: [dp=2, tp=4]\n"
               "  help: mesh.coordinate_of(rank) says whether it is");
}

TEST(MeshErrors, FlattenAndUnflatten) {
  expect_error([] { kMesh.flatten(1, 2, "all"); },
               "flatten: there are no 2 axes from axis 1 on\n"
               "  mesh: [dp=2, tp=4]\n"
               "  help: mesh.flatten(0, 2, \"all\")");
  expect_error(
      [] {
        kMesh.unflatten(1, {{"a", 3}, {"b", 2}});
      },
      "unflatten: the sizes do not multiply to the axis's 4\n"
      "  axis: tp of [dp=2, tp=4]\n"
      "  into: [a=3, b=2]\n"
      "  help: mesh.unflatten(1, {{\"a\", 4}, {\"b\", 1}})");
  expect_error(
      [] {
        kMesh.unflatten(2, {{"a", 1}});
      },
      "unflatten: there is no axis 2\n"
      "  mesh: [dp=2, tp=4]\n"
      "  help: axes are numbered from 0 to 1");
}

TEST(TilingErrors, Overlap) {
  const std::vector<Box> boxes = {{{0, 0}, {4, 2}}, {{2, 0}, {6, 2}}};
  expect_error(
      [&] {
        check_tiling("ShardedTensor", boxes, {8, 2});
      },
      "ShardedTensor: boxes overlap\n"
      "  box 0: [0:4, 0:2]\n"
      "  box 1: [2:8, 0:2]\n"
      "  both hold: [2:4, 0:2]\n"
      "  help: make box 1 Box{{4, 0}, {4, 2}}");
  const std::vector<Box> twice = {{{0}, {4}}, {{0}, {4}}};
  expect_error([&] { check_tiling("ShardedTensor", twice, {4}); },
               "ShardedTensor: boxes overlap\n"
               "  box 0: [0:4]\n"
               "  box 1: [0:4]\n"
               "  both hold: [0:4]\n"
               "  help: remove box 1");
  const std::vector<Box> corners = {{{0, 0}, {3, 3}}, {{2, 2}, {2, 2}}};
  expect_error(
      [&] {
        check_tiling("ShardedTensor", corners, {4, 4});
      },
      "ShardedTensor: boxes overlap\n"
      "  box 0: [0:3, 0:3]\n"
      "  box 1: [2:4, 2:4]\n"
      "  both hold: [2:3, 2:3]\n"
      "  help: take [2:3, 2:3] out of box 0 or box 1");
}

TEST(TilingErrors, Hole) {
  const std::vector<Box> boxes = {{{0, 0}, {4, 2}}};
  expect_error(
      [&] {
        check_tiling("ShardedTensor", boxes, {8, 2});
      },
      "ShardedTensor: boxes leave a hole\n"
      "  hole: [4:8, 0:2]\n"
      "  shape: [8, 2]\n"
      "  boxes: 1\n"
      "  help: add Box{{4, 0}, {4, 2}}");
}

TEST(TilingErrors, Outside) {
  const std::vector<Box> boxes = {{{0, 0}, {4, 2}}, {{4, 0}, {6, 2}}};
  expect_error(
      [&] {
        check_tiling("ShardedTensor", boxes, {8, 2});
      },
      "ShardedTensor: a box reaches outside the tensor\n"
      "  box 1: [4:10, 0:2]\n"
      "  shape: [8, 2]\n"
      "  help: make box 1 Box{{4, 0}, {4, 2}}");
  const std::vector<Box> beyond = {{{8}, {2}}};
  expect_error([&] { check_tiling("ShardedTensor", beyond, {8}); },
               "ShardedTensor: a box reaches outside the tensor\n"
               "  box 0: [8:10]\n"
               "  shape: [8]\n"
               "  help: remove box 0");
  const std::vector<Box> other_ndim = {{{0}, {8}}};
  expect_error(
      [&] {
        check_tiling("ShardedTensor", other_ndim, {8, 2});
      },
      "ShardedTensor: a box reaches outside the tensor\n"
      "  box 0: offset [0], size [8]\n"
      "  shape: [8, 2]\n"
      "  help: give box 0 an offset and a size of 2 dims, no size negative");
}

TEST(BoxErrors, DifferentNdim) {
  expect_error(
      [] {
        intersect({{0}, {4}}, {{0, 0}, {4, 4}});
      },
      "intersect: boxes of different ndim\n"
      "  one: [0:4]\n"
      "  other: [0:4, 0:4]\n"
      "  help: compare boxes of one tensor");
}

// Each line: the parser, a text, the problem, the place. The rest of the message is the same for all.
struct ParseError {
  const char* parser;
  const char* text;
  const char* problem;
  int place;
};
constexpr ParseError kParseErrors[] = {
    // clang-format off
    {"parse_placement", "", "expected a placement", 0},
    {"parse_placement", "Q", "expected a placement", 0},
    {"parse_placement", "S(0", "expected ')'", 3},
    {"parse_placement", "S(0) R", "expected the end of the text", 5},
    {"parse_placement", "S(x)", "expected a tensor dim", 2},
    {"parse_placement", "S(99999999999999999999)", "the number does not fit in 64 bits", 2},
    {"parse_placement", "S(0, stride=2)", "expected split= or cuts=", 5},
    {"parse_placement", "S(0, split=0)", "split must be at least 1", 11},
    {"parse_placement", "S(0, split=)", "expected a number of chunks", 11},
    {"parse_placement", "S(0, cuts=0:)", "expected a row to cut at", 12},
    {"parse_placement", "P(mean)", "no such reduction; there are sum, avg, min, max, product, band, bor, bxor", 2},
    {"parse_placement", "P()", "expected a reduction", 2},
    {"parse_placements", "S(0)", "expected '('", 0},
    {"parse_placements", "(S(0) R)", "expected ')'", 6},
    {"parse_mesh", "dp=2", "expected '['", 0},
    {"parse_mesh", "[dp]", "expected '='", 3},
    {"parse_mesh", "[dp=]", "expected a size", 4},
    {"parse_mesh", "[=2]", "expected an axis name or a size", 1},
    {"parse_mesh", "[dp=2, dp=4]", "two axes are called dp", 7},
    {"parse_mesh", "[dp=2, 4]", "some axes have names and some have none", 7},
    {"parse_mesh", "[dp=0]", "axis dp has size 0", 1},
    {"parse_mesh", "[2, -1]", "axis 1 has size -1", 4},
    {"parse_mesh", "[2]{0}", "1 rank for a mesh of 2", 4},
    {"parse_mesh", "[2]{0-2}", "more ranks than the 2 that can stand here", 4},
    {"parse_mesh", "[2]{3, 3}", "overlapping ranks: rank 3 stands at two places", 4},
    {"parse_mesh", "[2]{-1, 0}", "rank -1 is negative", 4},
    {"parse_mesh", "[2]{3-2}", "the run of ranks ends before it begins", 4},
    {"parse_box", "[0-4]", "expected ':'", 2},
    {"parse_box", "[4:0]", "the box ends before it begins", 1},
    {"parse_box", "[-9223372036854775807:9223372036854775807]", "the size does not fit in 64 bits", 1},
    {"parse_dims", "[4,]", "expected a number", 3},
    {"parse_tensor", "[4]", "expected a dtype", 0},
    {"parse_tensor", "f32", "expected '['", 3},
    {"parse_tensor", "f32[-4]", "a size cannot be negative", 4},
    {"parse_tensor", "f32[64@tp, 32@tp]", "mesh axis tp shards two dims", 13},
    {"parse_tensor", "f32[64@tp@tp]", "mesh axis tp shards one dim twice", 9},
    {"parse_tensor", "f32[64@tp] P(sum)@tp", "mesh axis tp both shards and is partial", 17},
    {"parse_tensor", "f32[64] P(sum)@tp P(sum)@tp", "mesh axis tp is partial twice", 24},
    {"parse_tensor", "f32[64@pp]", "the mesh [dp=2, tp=4] has no axis pp", 7},
    {"parse_tensor", "f32[64@0]", "expected the name of a mesh axis", 7},
    {"parse_tensor", "f32[64@tp@dp]", "axis dp cuts before tp: write @dp@tp, or @dp(split=4)@tp for tp first", 9},
    {"parse_tensor", "f32[64] S(0)", "expected 'P'", 8},
    // clang-format on
};

TEST(ParseErrors, NameTheTextAndThePlace) {
  const std::map<std::string, std::pair<std::string, std::function<void(std::string_view)>>> parsers = {
      {"parse_placement",
       {"S(0), S(0, split=2), S(0, cuts=0:3:10), R, P(sum)", [](auto text) { parse_placement(text); }}},
      {"parse_placements", {"(S(0), R, P(sum))", [](auto text) { parse_placements(text); }}},
      {"parse_mesh",
       {"[dp=2, tp=4], [2, 4] without names, [dp=2, tp=2]{0, 2, 4-5} for other ranks",
        [](auto text) { parse_mesh(text); }}},
      {"parse_box", {"[0:4, 2:6]", [](auto text) { parse_box(text); }}},
      {"parse_dims", {"[4, 6]", [](auto text) { parse_dims(text); }}},
      {"parse_tensor",
       {"f32[4096@dp, 1024@tp], f32[64@dp@tp], f32[64, 16] P(sum)@tp, i64[10@dp(cuts=0:3:10), 4@tp(split=2)]",
        [](auto text) { parse_tensor(text, kMesh); }}},
  };
  for (const ParseError& expected : kParseErrors) {
    const auto& [help, parse] = parsers.at(expected.parser);
    expect_error([&] { parse(expected.text); }, std::string(expected.parser) + ": " + expected.problem +
                                                    "\n  text: \"" + expected.text + "\"\n  at: character " +
                                                    std::to_string(expected.place) + "\n  help: " + help);
  }
}

TEST(ParseErrors, LongAndUnprintableTextsAreQuotedAroundThePlace) {
  expect_error([] { parse_dims("[" + std::string(80, ' ') + "\n\x01" + std::string(80, '9') + "]"); },
               "parse_dims: expected a number\n"
               "  text: ...\"" +
                   std::string(59, ' ') + "\\x0a\\x01" + std::string(59, '9') +
                   "\"...\n"
                   "  at: character 82\n"
                   "  help: [4, 6]");
}

TEST(ParseErrors, AnAxisNumberOutsideTheMeshIsNamed) {
  expect_error(
      [] {
        parse_tensor("f32[64@2]", Mesh({{"", 2}, {"", 4}}));
      },
      "parse_tensor: the mesh [2, 4] has no axis 2\n"
      "  text: \"f32[64@2]\"\n"
      "  at: character 7\n"
      "  help: f32[4096@dp, 1024@tp], f32[64@dp@tp], f32[64, 16] P(sum)@tp, "
      "i64[10@dp(cuts=0:3:10), 4@tp(split=2)]");
}

TEST(ParseErrors, PlacementsThatDoNotFitTheTensorAreCheckedToo) {
  expect_error([] { parse_tensor("f32[10@dp(cuts=0:3)]", kMesh); },
               "parse_tensor: 2 cuts for 2 pieces, which need 3\n"
               "  placement: S(0, cuts=0:3) on axis dp\n"
               "  mesh: [dp=2, tp=4]\n"
               "  shape: [10]\n"
               "  help: distribute_tensor(x, mesh, {Ragged(0, {0, 5, 10}), Replicate()})");
}

}  // namespace
}  // namespace sherd
