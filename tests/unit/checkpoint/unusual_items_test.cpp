// Items are where the metadata let one expect them; one that is not is read from where it is.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "format/archive.h"
#include "format/manifest.h"
#include "sherd/sherd.h"
#include "stored/stored_checkpoint.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 700;  // 1.9 MB: the item begins in one block and ends in another

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

// The item of a square tensor, with its elements column by column: of the same length, and as good.
void turn_item(const fs::path& checkpoint, const std::string& name, const at::Tensor& tensor) {
  const auto stored = stored::open_checkpoint(disk_storage(), checkpoint.string());
  const format::Metadata& metadata = stored->metadata();
  const auto entry = std::find_if(metadata.entries.begin(), metadata.entries.end(),
                                  [&](const format::MetadataEntry& each) { return each.name == name; });
  ASSERT_NE(entry, metadata.entries.end());
  const format::Place place = std::get<format::TensorEntry>(entry->content).places.at(0);
  const std::string file = metadata.files.at(static_cast<size_t>(place.file));

  const format::TensorItem item{format::DType::f32, {kSide, kSide}, {1, kSide}};
  const std::string data = bytes_of(tensor.t());
  const std::string turned =
      format::head_of(item) + data + format::tail_of(item, format::crc32(std::as_bytes(std::span(data))));
  ASSERT_EQ(static_cast<int64_t>(turned.size()), place.length);
  std::string bytes = read_all(checkpoint / file);
  bytes.replace(static_cast<size_t>(place.offset), turned.size(), turned);
  write_all(checkpoint / file, bytes);

  format::Manifest manifest = *stored->digests();
  format::BlockDigests digests;
  digests.add(std::as_bytes(std::span(bytes)));
  const auto told = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [&](const format::ManifestFile& each) { return each.name == file; });
  ASSERT_NE(told, manifest.files.end());
  told->blocks = digests.finish();
  write_all(checkpoint / format::kManifestName, format::encode_manifest(manifest));
}

// As PyTorch's own checkpoints are.
void forget_digests(const fs::path& checkpoint) {
  fs::remove(checkpoint / format::kManifestName);
  const std::string bytes = read_all(checkpoint / ".metadata");
  format::Metadata metadata = format::decode_metadata(std::as_bytes(std::span(bytes)), ".metadata");
  metadata.manifest.clear();
  std::string without;
  format::encode_metadata(metadata, [&](std::span<const std::byte> part) {
    without.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  write_all(checkpoint / ".metadata", without);
}

class UnusualItemsTest : public ::testing::Test {
 protected:
  UnusualItemsTest() : folder_(fs::path(::testing::TempDir()) / ("unusual-items-" + std::to_string(::getpid()))) {
    for (int i = 0; i < 3; ++i) {
      tensors_.push_back(torch::arange(kSide * kSide, torch::kFloat).view({kSide, kSide}) + i);
    }
  }
  ~UnusualItemsTest() override { fs::remove_all(folder_); }

  StateDict state() const { return {{"a", tensors_[0]}, {"b", tensors_[1]}, {"c", tensors_[2]}}; }

  const fs::path folder_;
  std::vector<at::Tensor> tensors_;
};

class UnusualItemsInAnyLayoutTest : public UnusualItemsTest, public ::testing::WithParamInterface<bool> {};

TEST_P(UnusualItemsInAnyLayoutTest, ElementsThatLieColumnByColumnAreRead) {
  spawn(1, [&](World&) { save(state(), folder_.string()); });
  turn_item(folder_, "b", tensors_[1]);
  const bool has_digests = GetParam();
  if (!has_digests) forget_digests(folder_);
  for (const int ranks : {1, 2, 3}) {
    for (const Placement& placement : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
      for (const auto dtype : {torch::kFloat, torch::kDouble}) {
        spawn(ranks, [&](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {world.size()});
          StateDict loaded;
          for (const char* name : {"a", "b", "c"}) {
            loaded[name] = zeros({kSide, kSide}, mesh, {placement}, at::TensorOptions(dtype));
          }
          load(loaded, folder_.string());
          size_t i = 0;
          for (const char* name : {"a", "b", "c"}) {
            EXPECT_TRUE(torch::equal(full_tensor(*loaded.at(name).tensor()), tensors_[i++].to(dtype)))
                << name << " on " << ranks << " ranks, " << to_string(placement);
          }
        });
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Digests, UnusualItemsInAnyLayoutTest, ::testing::Bool());

TEST_F(UnusualItemsTest, ABitThatFlippedInAFileWithoutDigestsIsFoundByTheCrcOfItsTensor) {
  spawn(1, [&](World&) { save(state(), folder_.string()); });
  forget_digests(folder_);
  const fs::path file = folder_ / "__0_0.distcp";
  std::string bytes = read_all(file);
  const std::string data = bytes_of(tensors_[1]);
  const size_t begin = bytes.find(data);
  ASSERT_NE(begin, std::string::npos);
  bytes[begin + data.size() - 5] ^= 4;
  write_all(file, bytes);
  std::string text;
  spawn(1, [&](World&) {
    StateDict loaded = {{"a", torch::zeros({kSide, kSide})}, {"b", torch::zeros({kSide, kSide})}};
    try {
      load(loaded, folder_.string());
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    }
    loaded.erase("b");
    load(loaded, folder_.string());
    EXPECT_TRUE(torch::equal(*loaded.at("a").tensor(), tensors_[0]));
  });
  EXPECT_EQ(text.substr(0, text.find("  CRC found")),
            "load: a file is damaged: its bytes are not those that were saved\n  file: " + file.string() +
                "\n  bytes: " + std::to_string(begin) + " to " + std::to_string(begin + data.size()) +
                "\n  CRC saved: " + fmt::format("{:08x}", format::crc32(std::as_bytes(std::span(data)))) + "\n");
}

// A part that lies behind the block with the item's head.
TEST_F(UnusualItemsTest, PartsFarFromTheBeginningOfAnItemAreRead) {
  spawn(1, [&](World&) { save(state(), folder_.string()); });
  turn_item(folder_, "b", tensors_[1]);
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {world.size()});
    StateDict loaded = {{"b", zeros({kSide, kSide}, mesh, {Shard(0)})}, {"c", zeros({kSide, kSide}, mesh, {Shard(0)})}};
    load(loaded, folder_.string());
    EXPECT_TRUE(torch::equal(full_tensor(*loaded.at("b").tensor()), tensors_[1]));
    EXPECT_TRUE(torch::equal(full_tensor(*loaded.at("c").tensor()), tensors_[2]));
  });
}

}  // namespace
}  // namespace sherd::testing
