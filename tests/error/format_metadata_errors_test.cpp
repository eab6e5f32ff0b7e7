// `.metadata` files that are damaged or mean harm.

#include <gtest/gtest.h>

#include "format/dcp.h"
#include "format/pickle.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

const std::string kModule = "torch.distributed.checkpoint.metadata";

Value made(const std::string& type, Dict fields, const std::string& module = kModule) {
  return Object{.type = {module, type}, .state = std::make_shared<Value>(std::move(fields))};
}
Value size(List numbers) { return Tuple{.items = std::move(numbers), .size = true}; }
Value chunk(List offsets, List sizes) {
  return made("ChunkStorageMetadata", {{{"offsets", size(std::move(offsets))}, {"sizes", size(std::move(sizes))}}});
}
Value tensor(List sizes, List chunks, const Value& dtype = Global{"torch", "float32"}) {
  const Value properties =
      Object{.type = {kModule, "TensorProperties"}, .state = std::make_shared<Value>(Tuple{{dtype}})};
  return made("TensorStorageMetadata",
              {{{"properties", properties}, {"size", size(std::move(sizes))}, {"chunks", Value(std::move(chunks))}}});
}
Value index(const std::string& name, List offset) {
  return made("MetadataIndex", {{{"fqn", name}, {"index", None{}}, {"offset", size(std::move(offset))}}});
}
Value place(const Value& file, const Value& offset, const Value& length) {
  return made("_StorageInfo", {{{"relative_path", file}, {"offset", offset}, {"length", length}}},
              "torch.distributed.checkpoint.filesystem");
}
Value metadata(Dict entries, Dict storage) {
  return made("Metadata",
              {{{"state_dict_metadata", Value(std::move(entries))}, {"storage_data", Value(std::move(storage))}}});
}
std::string refused(const Value& value) {
  return test::refusal([&] { decode_metadata(test::bytes_of(pickle(value)), "ck/.metadata"); });
}
Value whole(const Value& key, const Value& value) {
  return metadata({{{"w", tensor({4}, {chunk({0}, {2}), chunk({2}, {2})})}}}, {{{key, value}}});
}

TEST(MetadataErrors, WhatTheOthersAreMadeOfIsGood) {
  EXPECT_EQ(refused(whole(index("w", {2}), place("a/__0_0.distcp", 0, 8))), "nothing");
}

TEST(MetadataErrors, AnotherPickleIsNoMetadata) {
  EXPECT_EQ(refused(17), "decode_metadata: the file is no Metadata\n  in: ck/.metadata");
  EXPECT_EQ(refused(Object{.type = {kModule, "Metadata"}}),
            "decode_metadata: a Metadata has no fields\n  in: ck/.metadata");
  EXPECT_EQ(refused(made("Metadata", {})),
            "decode_metadata: the field state_dict_metadata is missing\n  in: ck/.metadata");
  EXPECT_EQ(refused(Object{.type = {"os", "system"}, .called = true, .arguments = {"true"}}),
            "decode_metadata: os.system may not stand here\n  in: ck/.metadata\n  opcode: GLOBAL at byte 2");
  EXPECT_EQ(refused(metadata({{{"w", Global{"torch", "load"}}}}, {})).substr(0, 47),
            "decode_metadata: torch.load may not stand here\n");
}

TEST(MetadataErrors, AChunkOutsideOfItsTensorIsNamed) {
  EXPECT_EQ(refused(metadata({{{"w", tensor({4, 6}, {chunk({2, 0}, {3, 6})})}}}, {})),
            "decode_metadata: a chunk lies outside of its tensor\n  in: ck/.metadata\n  entry: w\n  tensor: [4, 6]\n"
            "  chunk: [2:5, 0:6]");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {chunk({5}, {0})})}}}, {})).substr(0, 52),
            "decode_metadata: a chunk lies outside of its tensor\n");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {chunk({4}, {0})})}}}, {})), "nothing");  // an empty one at the end
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {chunk({0, 0}, {4, 1})})}}}, {})),
            "decode_metadata: a chunk has 2 dims, its tensor 1\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {chunk({-1}, {4})})}}}, {})),
            "decode_metadata: a chunk's place is negative: -1\n  in: ck/.metadata\n  entry: w");
}

TEST(MetadataErrors, ImpossibleTensorsAreRefused) {
  EXPECT_EQ(refused(metadata({{{"w", tensor({-4}, {})}}}, {})),
            "decode_metadata: a size is negative: -4\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", tensor({int64_t{1} << 40, int64_t{1} << 40}, {})}}}, {})),
            "decode_metadata: a tensor has an impossible size\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", tensor({1}, {}, "float32")}}}, {})),
            "decode_metadata: a tensor has no dtype\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", 5}}}, {})),
            "decode_metadata: an entry is no TensorStorageMetadata\n  in: ck/.metadata");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {5})}}}, {})),
            "decode_metadata: a chunk is no ChunkStorageMetadata\n  in: ck/.metadata");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {})}, {"w", tensor({4}, {})}}}, {})),
            "decode_metadata: an entry stands twice\n  in: ck/.metadata\n  entry: w");
}

TEST(MetadataErrors, StoredItemsBelongToAChunkAndAreStoredOnce) {
  EXPECT_EQ(refused(whole(index("v", {0}), place("f", 0, 8))),
            "decode_metadata: a stored item belongs to no entry\n  in: ck/.metadata\n  entry: v");
  EXPECT_EQ(refused(whole(index("w", {1}), place("f", 0, 8))),
            "decode_metadata: a stored item is no chunk of its tensor\n  in: ck/.metadata\n  entry: w\n  offset: [1]");
  EXPECT_EQ(refused(whole(index("w", {0, 0}), place("f", 0, 8))),
            "decode_metadata: a stored item has not as many dims as its tensor\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {chunk({0}, {4})})}}},
                             {{{index("w", {0}), place("f", 0, 8)}, {index("w", {0}), place("g", 0, 8)}}})),
            "decode_metadata: an item is stored twice\n  in: ck/.metadata\n  entry: w");
}

// Python takes the last one of two.
TEST(MetadataErrors, WhatStandsTwiceIsRefused) {
  const Value twice =
      made("ChunkStorageMetadata", {{{"offsets", size({0})}, {"sizes", size({4})}, {"sizes", size({2})}}});
  EXPECT_EQ(refused(metadata({{{"w", tensor({4}, {twice})}}}, {})),
            "decode_metadata: the field sizes stands twice\n  in: ck/.metadata\n  entry: w");
  const Value paths = Dict{{{"w", Tuple{{"a"}}}, {"w", Tuple{{"b"}}}}};
  EXPECT_EQ(refused(made("Metadata", {{{"state_dict_metadata", Dict{}}, {"planner_data", paths}}})),
            "decode_metadata: a name has two paths\n  in: ck/.metadata\n  entry: w");
}

TEST(MetadataErrors, FilesLieInTheFolder) {
  for (const std::string file : {"../x", "/etc/passwd", "a/../b", "", "a//b", ".", "a/."}) {
    EXPECT_EQ(
        refused(whole(index("w", {0}), place(file, 0, 8))),
        "decode_metadata: a file lies outside of the checkpoint: \"" + file + "\"\n  in: ck/.metadata\n  entry: w");
  }
  EXPECT_EQ(refused(whole(index("w", {0}), place("f", -1, 8))),
            "decode_metadata: an offset in a file is negative: -1\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(whole(index("w", {0}), place("f", INT64_MAX, 8))),
            "decode_metadata: an item lies beyond the end of any file\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(whole(index("w", {0}), place("f", "0", 8))),
            "decode_metadata: an offset in a file is no int\n  in: ck/.metadata\n  entry: w");
}

// A pickle names in two bytes what it holds once: copied as often, a short file would fill the memory.
TEST(MetadataErrors, WhatStandsOnceIsNotCopiedManyTimes) {
  const std::string too_much =
      "decode_metadata: the values would need much more memory than the pickle has bytes\n  in: ck/.metadata";
  const auto with = [](const std::string& field, const Value& value) {
    return made("Metadata", {{{"state_dict_metadata", Dict{}}, {"storage_data", Dict{}}, {field, value}}});
  };
  const Value one = chunk(List(60, 0), List(60, 1));
  EXPECT_EQ(refused(metadata({{{"w", tensor(List(60, 1), List(100000, one))}}}, {})), too_much);

  Dict entries;
  const Value many = tensor(List(60, 1), List(100, one));
  for (int i = 0; i < 3000; ++i) entries.items.emplace_back(std::to_string(i), many);
  EXPECT_EQ(refused(metadata(std::move(entries), {})), too_much);

  const Value path = Tuple{List(1000, 0)};
  EXPECT_EQ(refused(with("sherd_dicts", List(2000, path))), too_much);
  EXPECT_EQ(refused(with("sherd_ordered", List(2000, Tuple{{path, None{}}}))), too_much);
  Dict places;
  for (int i = 0; i < 2000; ++i) places.items.emplace_back(std::to_string(i), path);
  EXPECT_EQ(refused(with("planner_data", places)), too_much);
  const Value view = Tuple{{std::string(100000, 'x'), 0, Tuple{{1}}}};
  EXPECT_EQ(refused(with("sherd_shared", List{List(2000, view)})), too_much);

  Dict fields;
  for (int i = 0; i < 10000; ++i) fields.items.emplace_back(std::to_string(i), None{});
  fields.items.emplace_back("offsets", size({0}));
  fields.items.emplace_back("sizes", size({1}));
  const Value chunk_of_many = made("ChunkStorageMetadata", fields);
  EXPECT_EQ(refused(metadata({{{"w", tensor({1}, List(10000, chunk_of_many))}}}, {})), too_much);

  // What lies beside a dict is one value, however many dicts there are.
  EXPECT_EQ(refused(with("sherd_ordered", List(2000, Tuple{{Tuple{{"a"}}, List(100000, None{})}}))), "nothing");
}

// Who makes a state of them, part by part, would run out of stack.
TEST(MetadataErrors, PathsInTheStateAreNoDeeperThanPickles) {
  const std::string too_deep =
      "decode_metadata: a path in the state has 1001 parts, more than 1000\n  in: ck/.metadata";
  const auto with = [](const std::string& field, const Value& value) {
    return made("Metadata", {{{"state_dict_metadata", Dict{}}, {"storage_data", Dict{}}, {field, value}}});
  };
  for (const int64_t parts : {1000, 1001}) {
    const Value path = Tuple{List(static_cast<size_t>(parts), "a")};
    const std::string expected = parts > 1000 ? too_deep : "nothing";
    EXPECT_EQ(refused(with("planner_data", Dict{{{"x", path}}})), expected);
    EXPECT_EQ(refused(with("sherd_dicts", List{path})), expected);
    EXPECT_EQ(refused(with("sherd_ordered", List{Tuple{{path, None{}}}})), expected);
  }
  Metadata metadata;
  metadata.paths.emplace().emplace_back("x", std::vector<PathPart>(1001, "a"));
  EXPECT_EQ(test::refusal([&] { encode_metadata(metadata, [](std::span<const std::byte>) {}); }),
            "encode_metadata: a path in the state has too many parts\n  parts: 1001\n  most: 1000");
}

TEST(MetadataErrors, TensorsHaveNoMoreDimsThanInTorch) {
  EXPECT_EQ(refused(metadata({{{"w", tensor(List(65, 1), {})}}}, {})),
            "decode_metadata: a tensor has 65 dims, more than 64\n  in: ck/.metadata\n  entry: w");
  EXPECT_EQ(refused(metadata({{{"w", tensor(List(64, 1), {})}}}, {})), "nothing");
}

}  // namespace
}  // namespace sherd::format
