// What a user reads when a checkpoint of another format than the distributed one cannot be saved or loaded: whole
// texts, the same on every rank.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "sherd/convert.h"
#include "sherd/sherd.h"
#include "stored/read_file.h"
#include "unit/stored/stored_files.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointFormatsErrorsTest : public ::testing::Test {
 protected:
  CheckpointFormatsErrorsTest()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("formats-errors-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CheckpointFormatsErrorsTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "ck") const { return (folder_ / name).string(); }

  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  static std::string safetensors(const std::string& header) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return bytes + header;
  }

  // The text with the folder taken out.
  std::string text(const std::function<void()>& call) const {
    try {
      call();
    } catch (const c10::Error& error) {
      std::string what = error.what_without_backtrace();
      for (size_t at = what.find(folder_.string()); at != std::string::npos; at = what.find(folder_.string())) {
        what.replace(at, folder_.string().size(), "DIR");
      }
      return what;
    }
    return "no error";
  }
  // What both of two ranks say when they load; their states stay as they were.
  void expect_on_all(const std::string& name, const std::string& expected) {
    std::string indented = expected;
    for (size_t at = indented.find('\n'); at != std::string::npos; at = indented.find('\n', at + 5)) {
      indented.replace(at, 1, "\n    ");
    }
    spawn(2, [&](World&) {
      StateDict state{{"w", torch::full({2}, 7.)}};
      EXPECT_EQ(text([&] { load(state, path(name)); }),
                fmt::format("load: 2 of 2 ranks could not read the checkpoint\n  rank 0: {}\n  rank 1: {}\n"
                            "  help: what the ranks say; no rank went on",
                            indented, indented));
      EXPECT_TRUE(state.at("w").tensor()->equal(torch::full({2}, 7.)));
    });
  }

  fs::path folder_;
};

TEST_F(CheckpointFormatsErrorsTest, HostileHeadersOfSafetensors) {
  const std::string huge = R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})";
  write("huge", safetensors(huge));
  expect_on_all("huge", "read_safetensors: an impossible size\n  in: DIR/huge\n  tensor: w");
  const std::string beyond = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  write("beyond", safetensors(beyond));
  expect_on_all("beyond",
                "read_safetensors: the tensors do not end where the file ends\n  in: DIR/beyond\n  tensors: 8 bytes\n"
                "  file: 0 bytes behind the header");
  write("json", safetensors("{{{{"));
  expect_on_all("json", "read_safetensors: its header is no JSON: byte 2\n  in: DIR/json");
}

TEST_F(CheckpointFormatsErrorsTest, CutFiles) {
  save({{"w", torch::ones({2})}}, path("m.pt"));
  save({{"w", torch::ones({2})}}, path("m.safetensors"));
  const auto size = fs::file_size(path("m.pt"));
  fs::resize_file(path("m.pt"), size - 1);
  expect_on_all("m.pt", "read_archive: this is no zip archive\n  in: DIR/m.pt");
  fs::resize_file(path("m.safetensors"), fs::file_size(path("m.safetensors")) - 1);
  expect_on_all("m.safetensors",
                "read_safetensors: the tensors do not end where the file ends\n  in: DIR/m.safetensors\n"
                "  tensors: 8 bytes\n  file: 7 bytes behind the header");
}

TEST_F(CheckpointFormatsErrorsTest, AFolderOfTwoFormats) {
  save({{"w", torch::ones({2})}}, path());
  save({{"w", torch::ones({2})}}, path("ck/model.safetensors"));
  expect_on_all("ck",
                "load: the folder holds checkpoints of two formats\n  path: DIR/ck\n"
                "  found: .metadata, __0_0.distcp, model.safetensors, sherd.manifest\n"
                "  help: the path of a safetensors file, or a folder of one checkpoint alone");
}

TEST_F(CheckpointFormatsErrorsTest, AFileOfAFolderOfSafetensorsThatIsGone) {
  spawn(2, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    save({{"w", distribute_tensor(torch::ones({2}), mesh, {Shard(0)})}}, path(),
         {.format = CheckpointFormat::safetensors});
  });
  fs::remove(path("ck/shard-00002-model-00001-of-00001.safetensors"));
  expect_on_all("ck",
                "load: a file of the checkpoint is missing\n"
                "  file: DIR/ck/shard-00002-model-00001-of-00001.safetensors\n"
                "  help: another checkpoint, or bring the file back");
}

TEST_F(CheckpointFormatsErrorsTest, WhatAFormatDoesNotHave) {
  const StateDict state{{"w", torch::ones({2})}};
  save(state, path("base"));
  EXPECT_EQ(text([&] { save(state, path("m.pt"), {.base = path("base")}); }),
            R"(save: this format knows no base and no compression
  path: DIR/m.pt
  format: torch.save
  asked for: a base
  help: the path of a folder, which is a distributed checkpoint)");
  EXPECT_EQ(text([&] { save(state, path("m.safetensors"), {.compress = true}); }),
            R"(save: this format knows no base and no compression
  path: DIR/m.safetensors
  format: safetensors
  asked for: compression
  help: the path of a folder, which is a distributed checkpoint)");
  const StateDict complex{{"c", torch::ones({2}, torch::kComplexDouble)}};
  for (const char* name : {"m.safetensors", "folder"}) {
    EXPECT_EQ(text([&] { save(complex, path(name), {.format = CheckpointFormat::safetensors}); }),
              R"(save: safetensors cannot hold tensors of this dtype
  tensor: c
  dtype: c128
  help: SaveOptions{.format = CheckpointFormat::dcp}, or another dtype)");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);  // nothing but the base
}

TEST_F(CheckpointFormatsErrorsTest, AFileThatIsThereAlready) {
  const StateDict state{{"w", torch::ones({2})}};
  for (const char* name : {"m.pt", "m.safetensors"}) {
    save(state, path(name));
    EXPECT_EQ(text([&] { save(state, path(name), {.overwrite = false}); }),
              fmt::format(R"(save: there is a checkpoint already
  path: DIR/{}
  help: another path, or SaveOptions{{.overwrite = true}})",
                          name));
  }
  save(state, path("folder"), {.format = CheckpointFormat::safetensors});
  EXPECT_EQ(text([&] { save(state, path("folder"), {.overwrite = false}); }), R"(save: there is a checkpoint already
  path: DIR/folder
  help: another path, or SaveOptions{.overwrite = true})");
}

// A byte in the middle of a tensor, in a block that nothing else is read from.
TEST_F(CheckpointFormatsErrorsTest, DamageOfATensorIsNamedWithItsFileAndBytes) {
  constexpr int64_t kElements = int64_t{1} << 20;  // of 4 bytes
  const auto storage = memory_storage();
  const auto state = [](double value) {
    return StateDict{{"v", torch::full({kElements}, value)}, {"w", torch::full({kElements}, value)}};
  };
  for (const std::string path : {"ck.pt", "ck.safetensors"}) save(state(1), path, {.storage = storage});
  RewriteOptions in_files{.format = CheckpointFormat::safetensors, .from_storage = storage, .to_storage = storage};
  in_files.file_bytes = 5'000'000;
  rewrite_checkpoint({"ck.pt"}, "indexed", in_files);
  for (const std::string path : {"ck.pt", "ck.safetensors", "indexed"}) {
    const auto checkpoint = stored::open_checkpoint(storage, path);
    const auto& entry = std::get<format::TensorEntry>(checkpoint->metadata().find("w")->content);
    const format::Place& place = entry.places.at(0);
    const std::string name = checkpoint->metadata().files.at(static_cast<size_t>(place.file));
    const bool is_folder = path == "indexed";
    const std::string file = is_folder ? path + "/" + name : path;
    const int64_t at = place.offset + 2 * format::kBlock;
    std::map<std::string, std::string> files;
    for (const std::string& each : storage->list(path)) files[each] = stored::read_file(*storage, path + "/" + each);
    if (!is_folder) files[Draft::kItself] = stored::read_file(*storage, path);
    files.at(is_folder ? name : Draft::kItself)[static_cast<size_t>(at)] ^= 1;
    stored::test::put(*storage, path, files);
    const int64_t block = at / format::kBlock * format::kBlock;
    StateDict loaded = state(0);
    const std::string what = text([&] { load(loaded, path, {.storage = storage}); });
    EXPECT_EQ(what.substr(0, what.find("  digest saved")),
              fmt::format("load: a file is damaged: its bytes are not those that were saved\n"
                          "  file: {}\n  bytes: {} to {}\n",
                          file, block, block + format::kBlock));
    EXPECT_NE(what.find("\n  reading: tensor w\n"), std::string::npos) << what;
  }
}

TEST_F(CheckpointFormatsErrorsTest, AnyByteOfAFolderOfSafetensors) {
  save({{"w", torch::arange(20.)}, {"n", 3}}, path(), {.format = CheckpointFormat::safetensors});
  const fs::path file = fs::path(path()) / "shard-00001-model-00001-of-00001.safetensors";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<int64_t>(fs::file_size(file)) - 5);
  stream.put('!');
  stream.close();
  StateDict state{{"w", torch::zeros({20})}};
  const std::string what = text([&] { load(state, path(), {.strict = false}); });
  EXPECT_EQ(what.substr(0, what.find("  digest saved")),
            fmt::format("load: a file is damaged: its bytes are not those that were saved\n"
                        "  file: DIR/ck/shard-00001-model-00001-of-00001.safetensors\n  bytes: 0 to {}\n",
                        fs::file_size(file)));
  load(state, path(), {.verify = false});
}

}  // namespace
}  // namespace sherd::testing
