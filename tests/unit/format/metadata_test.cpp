#include <gtest/gtest.h>

#include <map>

#include "format/dcp.h"
#include "format/pickle.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

/// Written by PyTorch 2.13: {"w": float32 2x3, "s": bytes} in one file.
const std::string kGolden = test::from_hex(
    "8004953f030000000000008c25746f7263682e64697374726962757465642e636865636b706f696e742e6d65746164617461948c084d657461"
    "64"
    "6174619493942981947d94288c1373746174655f646963745f6d65746164617461947d94288c0177946800"
    "8c1554656e736f7253746f726167654d657461646174619493942981947d94288c0a70726f706572746965739468008c1054656e736f725072"
    "6f"
    "70657274696573949394298194288c05746f726368948c07666c6f617433329493948c13746f726368"
    "2e73657269616c697a6174696f6e948c0b5f6765745f6c61796f75749493948c0d746f7263682e7374726964656494859452948968008c145f"
    "4d"
    "454d5f464f524d41545f454e434f44494e479493944b0085945294897494628c0473697a65948c05746f"
    "726368948c0453697a659493944b024b038694859452948c066368756e6b73945d9468008c144368756e6b53746f726167654d657461646174"
    "61"
    "9493942981947d94288c076f6666736574739468214b004b008694859452948c0573697a65739468214b"
    "024b0386948594529475626175628c01739468008c14427974657353746f726167654d65746164617461949394298194758c0c706c616e6e65"
    "72"
    "5f64617461947d9428680768078594683368338594758c0c73746f726167655f64617461947d94286800"
    "8c0d4d65746164617461496e6465789493942981947d94288c0366716e9468338c05696e646578944e75628c27746f7263682e646973747269"
    "62"
    "757465642e636865636b706f696e742e66696c6573797374656d948c0c5f53746f72616765496e666f94"
    "93942981947d94288c0d72656c61746976655f70617468948c0c5f5f305f302e646973746370948c066f6666736574944b008c066c656e6774"
    "68"
    "944ded047562683e2981947d94286841680768424b00684a68214b004b00869485945294756268452981"
    "947d942868486849684a4ded04684b4d29067562758c0c73746f726167655f6d6574619468008c0b53746f726167654d657461949394298194"
    "7d"
    "94288c0d636865636b706f696e745f6964948c02636b948c07736176655f6964948c026964948c076c6f"
    "61645f6964944e8c076d6f64756c6573945d9475628c0776657273696f6e948c05312e302e309475622e");

Metadata golden() {
  Metadata metadata;
  metadata.files = {"__0_0.distcp"};
  TensorEntry tensor;
  tensor.size = {2, 3};
  tensor.add({0, 0}, {2, 3}, {.file = 0, .offset = 1261, .length = 1577});
  metadata.entries = {{"w", tensor}, {"s", BytesEntry{{.file = 0, .offset = 0, .length = 1261}}}};
  metadata.paths = {{"w", {PathPart("w")}}, {"s", {PathPart("s")}}};
  metadata.checkpoint_id = "ck";
  metadata.save_id = "id";
  return metadata;
}

std::string encoded(const Metadata& metadata) {
  std::string bytes;
  encode_metadata(metadata, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

TEST(MetadataTest, TheGoldenVectorIsRead) { EXPECT_EQ(decode_metadata(bytes_of(kGolden), ".metadata"), golden()); }

TEST(MetadataTest, WhatIsWrittenReadsAsTheSame) {
  EXPECT_EQ(decode_metadata(bytes_of(encoded(golden())), ".metadata"), golden());
}

TEST(MetadataTest, TheNameOfTheManifestIsKeptAndLiesInTheFolder) {
  Metadata metadata = golden();
  metadata.manifest = "sherd.manifest-0123";
  EXPECT_EQ(decode_metadata(bytes_of(encoded(metadata)), ".metadata"), metadata);
  for (const char* name : {"../sherd.manifest", "/etc/passwd", "a/../b"}) {
    metadata.manifest = name;
    EXPECT_THROW(decode_metadata(bytes_of(encoded(metadata)), ".metadata"), std::invalid_argument) << name;
  }
}

TEST(MetadataTest, ManyChunksInPiecesComeBackInOrder) {
  Metadata metadata;
  metadata.transforms = {{"stream.zstd/1"}, {"a/1", "b/2"}};
  for (int rank = 0; rank < 300; ++rank) metadata.files.push_back("__" + std::to_string(rank) + "_0.distcp");
  metadata.paths.emplace();
  for (int i = 0; i < 40; ++i) {
    TensorEntry tensor;
    tensor.dtype = static_cast<DType>(i % 22);
    tensor.size = {300 * (i % 3 + 1), 5};
    for (int64_t rank = 0; rank < 300; ++rank) {
      const int64_t rows = i % 3 + 1;
      tensor.add({rank * rows, 0}, {rows, 5},
                 {.file = static_cast<int32_t>(rank),
                  .transforms = i % 7 == 0 ? static_cast<int32_t>(rank % 2) : -1,
                  .offset = (int64_t{1} << i) * 3,
                  .length = rank});
    }
    const std::string name = "layer." + std::to_string(i) + std::string(static_cast<size_t>(i * 20), 'x');
    metadata.paths->push_back({name, {PathPart("layer"), PathPart(int64_t{i})}});
    metadata.entries.push_back({name, tensor});
  }
  TensorEntry scalar;
  scalar.add({}, {}, {.file = 0, .offset = 0, .length = 9});
  metadata.entries.push_back({"scalar", scalar});
  TensorEntry nowhere;  // its places are not known
  nowhere.size = {4};
  nowhere.add({0}, {4}, {});
  metadata.entries.push_back({"nowhere", nowhere});

  std::vector<size_t> pieces;
  encode_metadata(metadata, [&](std::span<const std::byte> part) { pieces.push_back(part.size()); });
  for (const size_t piece : pieces) EXPECT_LT(piece, size_t{2} << 20);
  EXPECT_EQ(decode_metadata(bytes_of(encoded(metadata)), ".metadata"), metadata);
}

// By the entries' names.
std::map<std::string, std::vector<PathPart>> planner_data_of(const std::string& bytes) {
  const Value value = unpickle(bytes_of(bytes), {.operation = "test", .source = "test"});
  const Value* data = value.as<Object>()->state->as<Dict>()->find("planner_data");
  std::map<std::string, std::vector<PathPart>> paths;
  for (const auto& [name, path] : data->as<Dict>()->items) {
    std::vector<PathPart>& parts = paths[*name.as<std::string>()];
    for (const Value& part : path.as<Tuple>()->items) {
      const auto* number = part.as<int64_t>();
      parts.push_back(number != nullptr ? PathPart(*number) : PathPart(*part.as<std::string>()));
    }
  }
  return paths;
}

using Parts = std::vector<PathPart>;

Metadata with_places(std::vector<std::pair<std::string, Parts>> places, std::vector<Parts> dicts) {
  Metadata metadata;
  for (const auto& [name, path] : places) metadata.entries.push_back({name, BytesEntry{}});
  metadata.paths = std::move(places);
  metadata.dicts = std::move(dicts);
  return metadata;
}

// torch takes ints for places in lists.
TEST(MetadataTest, IntsThatAreKeysAreWrittenAsTextsAndReadAsInts) {
  const Metadata metadata = with_places({{"d.7", {"d", 7}},
                                         {"d.-1.0", {"d", -1, 0}},
                                         {"d.007", {"d", "007"}},
                                         {"d.x.3", {"d", "x", 3}},
                                         {"l.7", {"l", 7}}},
                                        {{"d"}, {"d", -1}});
  const std::string bytes = encoded(metadata);
  EXPECT_EQ(planner_data_of(bytes), (std::map<std::string, Parts>{{"d.7", {"d", "7"}},
                                                                  {"d.-1.0", {"d", "-1", "0"}},
                                                                  {"d.007", {"d", "007"}},
                                                                  {"d.x.3", {"d", "x", 3}},
                                                                  {"l.7", {"l", 7}}}));
  EXPECT_EQ(decode_metadata(bytes_of(bytes), ".metadata"), metadata);
}

// Nobody could tell them apart.
TEST(MetadataTest, IntsBesideATextThatReadsAsOneStayInts) {
  const Metadata metadata = with_places({{"d.5", {"d", 5}}, {"d.7", {"d", "7"}}}, {{"d"}});
  const std::string bytes = encoded(metadata);
  EXPECT_EQ(planner_data_of(bytes), (std::map<std::string, Parts>{{"d.5", {"d", 5}}, {"d.7", {"d", "7"}}}));
  EXPECT_EQ(decode_metadata(bytes_of(bytes), ".metadata"), metadata);
  // The same where the int was left out since.
  const Metadata rest = with_places({{"d.7", {"d", "7"}}}, {{"d"}});
  EXPECT_EQ(decode_metadata(bytes_of(encoded(rest)), ".metadata").paths, rest.paths);
}

TEST(MetadataTest, APlannersOwnDataAreKept) {
  Metadata metadata = golden();
  metadata.paths.reset();
  metadata.other_planner_data = Dict{{{"x", List{1, 2.5, Tuple{{"y", None{}}}}}, {"z", Set{{1}}}}};
  EXPECT_EQ(decode_metadata(bytes_of(encoded(metadata)), ".metadata"), metadata);
}

}  // namespace
}  // namespace sherd::format
