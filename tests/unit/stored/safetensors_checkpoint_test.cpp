// safetensors files as checkpoints: one, several with an index, and those of ranks.

#include "stored/safetensors_checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "format/object_json.h"
#include "format/saved.h"
#include "unit/stored/stored_files.h"

namespace sherd::stored {
namespace {

using format::DType;
using format::SafeTensor;
using format::Value;
using test::elements_of;
using test::object_of;
using test::put;

using Texts = std::vector<std::pair<std::string, std::string>>;
struct Named {
  std::string name;
  Dims sizes;
  float first;
};

// A file of tensors that count up from their first element.
std::string file_of(const std::vector<Named>& tensors, Texts metadata = {}) {
  format::SafetensorsFile file;
  file.metadata = std::move(metadata);
  for (const Named& tensor : tensors) file.tensors.push_back({tensor.name, DType::f32, tensor.sizes});
  std::string bytes = lay_out_safetensors(file);
  for (const SafeTensor& laid : file.tensors) {
    for (const Named& tensor : tensors) {
      if (tensor.name != laid.name) continue;
      for (int64_t i = 0; i < numel(laid.sizes); ++i) {
        const float value = tensor.first + static_cast<float>(i);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
  }
  return bytes;
}

class SafetensorsCheckpointTest : public ::testing::Test {
 protected:
  std::unique_ptr<StoredCheckpoint> open(const std::string& path) { return open_checkpoint(storage_, path); }
  std::string refused(const std::string& path) {
    return test::refusal([&] { open(path); });
  }
  static Value value_of(const std::string& archive) {
    return format::read_saved(format::MemorySource(std::as_bytes(std::span(archive))), "object").value;
  }
  std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(SafetensorsCheckpointTest, OneFile) {
  put(*storage_, "m.safetensors", file_of({{"a", {2, 2}, 1}, {"b.c", {}, 7}}, {{"author", "me"}, {"format", "pt"}}));
  const auto checkpoint = open("m.safetensors");
  EXPECT_STREQ(checkpoint->format(), "safetensors");
  EXPECT_EQ(elements_of<float>(*checkpoint, "a"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "b.c"), std::vector<float>{7});
  EXPECT_EQ(checkpoint->metadata().paths, std::nullopt);
  EXPECT_EQ(dynamic_cast<SafetensorsCheckpoint&>(*checkpoint).texts(), (Texts{{"author", "me"}}));
  // Its name does not count, its bytes do.
  put(*storage_, "m.pt", file_of({{"a", {2, 2}, 1}}));
  EXPECT_STREQ(open("m.pt")->format(), "safetensors");
}

TEST_F(SafetensorsCheckpointTest, ObjectsAndPathsThatSherdKeptInTheTexts) {
  const std::vector<format::NamedObject> objects = {{"step", format::archive_of(4000)},
                                                    {"betas", format::archive_of(format::Tuple{{0.9, 0.99}})}};
  const format::NamedPaths paths = {{"model.w", {"model", "w"}}, {"list.0", {"list", 0}}};
  put(*storage_, "m.safetensors",
      file_of({{"model.w", {1}, 1}},
              {{format::kObjectsKey, encode_objects(objects)}, {format::kPathsKey, format::encode_paths(paths)}}));
  const auto checkpoint = open("m.safetensors");
  EXPECT_EQ(value_of(object_of(*checkpoint, "step")), Value(4000));
  EXPECT_EQ(value_of(object_of(*checkpoint, "betas")), Value(format::Tuple{{0.9, 0.99}}));
  EXPECT_EQ(checkpoint->metadata().paths, paths);
  EXPECT_EQ(checkpoint->metadata().entries.size(), 3U);
}

TEST_F(SafetensorsCheckpointTest, TextsOfSherdThatAreDamagedAreRefused) {
  const auto text = [&](const char* key, const std::string& value) {
    put(*storage_, "m.safetensors", file_of({{"w", {1}, 1}}, {{key, value}}));
    return refused("m.safetensors");
  };
  EXPECT_EQ(text(format::kObjectsKey, "{"), "read_safetensors: this is no JSON: byte 2\n  in: m.safetensors");
  EXPECT_EQ(text(format::kObjectsKey, "[]"), "read_safetensors: this is no JSON object\n  in: m.safetensors");
  EXPECT_EQ(text(format::kObjectsKey, R"({"a":1,"a":2})"),
            "read_safetensors: the key \"a\" stands twice\n  in: m.safetensors");
  EXPECT_EQ(text(format::kObjectsKey, R"({"w":1})"),
            "load: two entries have one name\n  file: m.safetensors\n  name: w\n"
            "  help: another checkpoint: this one is damaged");
  EXPECT_EQ(text(format::kObjectsKey, R"({"o":{"$what":1}})"),
            "load: an object's JSON is not as sherd writes it\n  in: m.safetensors, o\n  found: {\"$what\":1}\n"
            "  help: docs/format.md says what is read");
  EXPECT_EQ(text(format::kObjectsKey, std::string(5000, '[')),
            "read_safetensors: JSON deeper than 4000\n  in: m.safetensors");
  EXPECT_EQ(text(format::kPathsKey, R"({"w":["a",1.5]})"),
            "read_safetensors: the path of \"w\" is no array of texts and ints\n  in: m.safetensors");
  const std::string deep = fmt::format("[{}]", fmt::join(std::vector<int>(1001, 0), ","));
  const std::string too_deep =
      "read_safetensors: a path in the state has 1001 parts, more than 1000\n  in: m.safetensors";
  EXPECT_EQ(text(format::kPathsKey, "{\"w\":" + deep + "}"), too_deep);
  EXPECT_EQ(text(format::kDictsKey, "[" + deep + "]"), too_deep);
  EXPECT_EQ(text(format::kOrderedKey, "[[" + deep + ",null]]"), too_deep);
}

TEST_F(SafetensorsCheckpointTest, ManyKeysAreReadInTheirOrderWithoutLookingBack) {
  std::vector<format::NamedObject> objects;
  for (int i = 0; i < 50000; ++i) objects.push_back({fmt::format("o{}", 50000 - i), format::archive_of(i)});
  EXPECT_EQ(format::decode_objects(encode_objects(objects), "texts"), objects);
}

TEST_F(SafetensorsCheckpointTest, AFolderWithAnIndex) {
  const std::string index = R"({"metadata": {}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}})";
  const std::string second = file_of({{"b", {2}, 5}, {"not in the index", {1}, 0}});
  put(*storage_, "hf",
      {{"model.safetensors.index.json", index},
       {"x-1.safetensors", file_of({{"a", {3}, 1}})},
       {"x-2.safetensors", second},
       {"other.safetensors", "no such file at all"}});
  const auto checkpoint = open("hf");
  EXPECT_EQ(checkpoint->metadata().entries.size(), 2U);
  EXPECT_EQ(elements_of<float>(*checkpoint, "a"), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "b"), (std::vector<float>{5, 6}));
}

TEST_F(SafetensorsCheckpointTest, AnIndexThatIsWrongIsRefused) {
  const auto with = [&](const std::string& index, const std::string& name = "model.safetensors.index.json") {
    put(*storage_, "hf", {{name, index}, {"x.safetensors", file_of({{"a", {3}, 1}})}});
    return refused("hf");
  };
  EXPECT_EQ(with(R"({"weight_map": {"a": "x.safetensors"}})", "diffusion.safetensors.index.json"), "nothing");
  EXPECT_EQ(with(R"({"weight_map": {"b": "x.safetensors"}})"),
            "read_safetensors: a tensor of the index is not in its file\n  in: hf\n  tensor: b\n  file: x.safetensors\n"
            "  help: the files that belong to the index");
  EXPECT_EQ(with(R"({"weight_map": {"a": "y.safetensors"}})"),
            "load: a file of the checkpoint is missing\n  file: hf/y.safetensors\n"
            "  help: another checkpoint, or bring the file back");
  EXPECT_EQ(with(R"({"weight_map": {"a": "../x.safetensors"}})"),
            "decode_safetensors_index: a file lies outside of the folder: \"../x.safetensors\"\n"
            "  in: hf/model.safetensors.index.json\n  tensor: a");
  put(*storage_, "hf", {{"a.safetensors.index.json", "{}"}, {"b.safetensors.index.json", "{}"}});
  EXPECT_EQ(refused("hf"),
            "load: the folder has several indices\n  folder: hf\n"
            "  found: a.safetensors.index.json, b.safetensors.index.json\n"
            "  help: a folder of one model, or the path of one safetensors file");
}

TEST_F(SafetensorsCheckpointTest, FilesOfRanksAreOneTensor) {
  const auto part = [](int64_t row, float first) {
    const std::pair<std::string, Dims> offset{"w", {row, 0}};
    return file_of({{"w", {2, 3}, first}}, format::sharding_metadata({&offset, 1}));
  };
  put(*storage_, "ranks",
      {{"shard-00001-model-00001-of-00001.safetensors", part(0, 0)},
       {"shard-00002-model-00001-of-00001.safetensors", part(2, 6)}});
  const auto checkpoint = open("ranks");
  EXPECT_EQ(std::get<format::TensorEntry>(checkpoint->metadata().find("w")->content).size, (Dims{4, 3}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "w"), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

// What sherd writes beside the files of ranks.
class WithManifest : public SafetensorsCheckpointTest {
 protected:
  std::map<std::string, std::string> folder(const std::vector<std::string>& files, const std::string& id = kId) {
    std::map<std::string, std::string> all;
    format::Manifest manifest;
    manifest.id = id;
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string name = fmt::format("shard-{}.safetensors", i);
      format::BlockDigests digests;
      digests.add(std::as_bytes(std::span(files[i])));
      manifest.files.push_back({name, static_cast<int64_t>(files[i].size()), digests.finish(), {}});
      all[name] = files[i];
    }
    all[format::kManifestName] = encode_manifest(manifest);
    return all;
  }
  static constexpr const char* kId = "0123456789abcdef0123456789abcdef";
};

TEST_F(WithManifest, AnyByteThatChangedIsFound) {
  auto files = folder({file_of({{"w", {20}, 0}}, {{format::kSaveIdKey, kId}})});
  put(*storage_, "ck", files);
  EXPECT_EQ(elements_of<float>(*open("ck"), "w").size(), 20U);
  for (size_t at = 0; at < files["shard-0.safetensors"].size(); ++at) {
    auto damaged = files;
    damaged["shard-0.safetensors"][at] ^= 4;
    put(*storage_, "ck", damaged);
    const std::string text = test::refusal([&] { elements_of<float>(*open("ck"), "w"); });
    EXPECT_TRUE(
        text.starts_with("load: a file is damaged: its bytes are not those that were saved\n"
                         "  file: ck/shard-0.safetensors\n"))
        << at << ": " << text;
  }
  auto shorter = files;
  shorter["shard-0.safetensors"].pop_back();
  put(*storage_, "ck", shorter);
  EXPECT_NE(test::refusal([&] { elements_of<float>(*open("ck"), "w"); }), "nothing");
}

TEST_F(WithManifest, OnlyFilesOfTheManifestCount) {
  auto files = folder({file_of({{"w", {2}, 0}}, {{format::kSaveIdKey, kId}})});
  files["left-over.safetensors"] = file_of({{"w", {3}, 0}});
  put(*storage_, "ck", files);
  EXPECT_EQ(elements_of<float>(*open("ck"), "w").size(), 2U);
}

TEST_F(WithManifest, FilesThatAnotherProgramWroteOverThemAreReadAsTheyAre) {
  auto files = folder({file_of({{"w", {2}, 0}}, {{format::kSaveIdKey, kId}})});
  files["shard-0.safetensors"] = file_of({{"w", {3}, 0}});
  put(*storage_, "ck", files);
  EXPECT_EQ(elements_of<float>(*open("ck"), "w").size(), 3U);
}

}  // namespace
}  // namespace sherd::stored
