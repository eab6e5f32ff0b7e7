// tests/golden/dcp_python/: a checkpoint that torch 2.13 wrote, all of it read and every tensor's item written again.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "format/archive.h"
#include "format/dcp.h"
#include "format/pickle.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

const std::string kFolder = std::string(SHERD_SOURCE_DIR) + "/tests/golden/dcp_python";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class GoldenCheckpoint : public testing::Test {
 protected:
  std::string_view item(const Place& place) {
    const std::string& name = metadata.files.at(static_cast<size_t>(place.file));
    if (!files.contains(name)) files[name] = read_file(kFolder + "/" + name);
    return std::string_view(files[name]).substr(static_cast<size_t>(place.offset), static_cast<size_t>(place.length));
  }

  static Value value_in(std::string_view bytes) {
    const MemorySource source(bytes_of(bytes));
    const Archive archive = read_archive(source, "item");
    return unpickle(bytes_of(read_record(source, *archive.find("data.pkl"), "item")));
  }
  static std::string storage_in(std::string_view bytes) {
    const MemorySource source(bytes_of(bytes));
    return read_record(source, *read_archive(source, "item").find("data/0"), "item");
  }

  Metadata metadata = decode_metadata(bytes_of(read_file(kFolder + "/.metadata")), kFolder);
  std::map<std::string, std::string> files;
};

/// The elements of a tensor in row-major order.
std::string row_major(const TensorRef& tensor, const std::string& storage) {
  const auto size = static_cast<size_t>(size_of(tensor.dtype));
  std::string bytes;
  Dims at(tensor.sizes.size(), 0);
  for (int64_t left = numel(tensor.sizes); left > 0; --left) {
    int64_t element = tensor.offset;
    for (size_t d = 0; d < at.size(); ++d) element += at[d] * tensor.strides[d];
    bytes += storage.substr(static_cast<size_t>(element) * size, size);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == tensor.sizes[d];) at[d] = 0;
  }
  return bytes;
}

TEST_F(GoldenCheckpoint, HoldsWhatPythonSaysThatItHolds) {
  std::vector<const MetadataEntry*> entries;
  for (const MetadataEntry& entry : metadata.entries) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string text;
  for (const MetadataEntry* entry : entries) {
    if (const auto* object = std::get_if<BytesEntry>(&entry->content)) {
      text += fmt::format("{}: {}\n", entry->name, to_string(value_in(item(object->place))));
      continue;
    }
    const auto& tensor = std::get<TensorEntry>(entry->content);
    text += fmt::format("{}: torch.{} {}\n", entry->name, names_of(tensor.dtype).torch, sherd::to_string(tensor.size));
    std::vector<size_t> order(tensor.chunk_count());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return tensor.box(a).offset < tensor.box(b).offset; });
    for (const size_t i : order) {
      const std::string_view bytes = item(tensor.places[i]);
      const Value value = value_in(bytes);
      const auto* saved = value.as<TensorRef>();
      ASSERT_NE(saved, nullptr) << entry->name;
      EXPECT_EQ(saved->dtype, tensor.dtype) << entry->name;
      EXPECT_EQ(saved->sizes, tensor.box(i).size) << entry->name;
      text +=
          fmt::format("  {} {} {} {:08x}\n", sherd::to_string(tensor.box(i).offset),
                      sherd::to_string(tensor.box(i).size), metadata.files[static_cast<size_t>(tensor.places[i].file)],
                      crc32(bytes_of(row_major(*saved, storage_in(bytes)))));
    }
  }
  EXPECT_EQ(text, read_file(kFolder + ".txt"));
}

TEST_F(GoldenCheckpoint, EveryItemIsWrittenAgainWithTheSameBytes) {
  size_t tensors = 0;
  for (const MetadataEntry& entry : metadata.entries) {
    if (const auto* object = std::get_if<BytesEntry>(&entry.content)) {
      EXPECT_TRUE(archive_of(value_in(item(object->place))) == item(object->place)) << entry.name;
      continue;
    }
    for (const Place& place : std::get<TensorEntry>(entry.content).places) {
      const Value value = value_in(item(place));
      const auto* saved = value.as<TensorRef>();
      ASSERT_NE(saved, nullptr) << entry.name;
      const TensorItem written{.dtype = saved->dtype, .sizes = saved->sizes, .strides = saved->strides};
      const std::string data = storage_in(item(place));
      EXPECT_EQ(lengths_of(written).total(), place.length) << entry.name;
      EXPECT_TRUE(head_of(written) + data + tail_of(written, crc32(bytes_of(data))) == item(place)) << entry.name;
      ++tensors;
    }
  }
  EXPECT_EQ(tensors, 34U);
}

TEST_F(GoldenCheckpoint, KnowsWhereEverythingStoodInTheState) {
  ASSERT_TRUE(metadata.paths.has_value());
  EXPECT_EQ(metadata.paths->size(), metadata.entries.size());
  const auto found = std::find_if(metadata.paths->begin(), metadata.paths->end(),
                                  [](const auto& path) { return path.first == "names.0.größe.語"; });
  ASSERT_NE(found, metadata.paths->end());
  EXPECT_EQ(found->second, (std::vector<PathPart>{"names", int64_t{0}, "größe.語"}));
}

}  // namespace
}  // namespace sherd::format
