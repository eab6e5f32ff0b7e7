#include "format/saved.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "format/pickle.h"
#include "format/zip.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

using test::bytes_of;

std::string golden(const std::string& name) {
  std::ifstream file(std::string(SHERD_SOURCE_DIR) + "/tests/golden/torch_save/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string refused(const std::string& bytes) {
  return test::refusal([&] { read_saved(MemorySource(bytes_of(bytes)), "m.pt"); });
}

TEST(SavedTest, APythonStateDictIsRead) {
  const std::string bytes = golden("python_state.pt");
  const MemorySource source(bytes_of(bytes));
  const Saved saved = read_saved(source, "python_state.pt");
  EXPECT_EQ(to_string(saved.value, 10000),
            "{'model': OrderedDict({'weight': tensor f32[2, 3], 'bias': tensor f32[2]}), "
            "'optimizer': {'state': {0: {'step': tensor f32[], 'exp_avg': tensor f32[2, 3]}}, "
            "'param_groups': [{'lr': 0.1, 'betas': (0.9, 0.999), 'params': [0, 1]}]}, "
            "'view': tensor f32[3], 'epoch': 3}");
  const auto* model = saved.value.as<Dict>()->find("model")->as<Dict>();
  ASSERT_NE(model->state, nullptr);
  EXPECT_EQ(to_string(*model->state), "{'_metadata': OrderedDict({'': {'version': 1}})}");
  // The view shares the weight's storage.
  const auto* weight = model->find("weight")->as<TensorRef>();
  const auto* view = saved.value.as<Dict>()->find("view")->as<TensorRef>();
  EXPECT_EQ(weight->storage, view->storage);
  EXPECT_EQ(view->offset, 3);
  const std::string data = read_record(source, *saved.archive.find("data/" + weight->storage), "python_state.pt");
  EXPECT_EQ(data, std::string("\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@", 24));
}

TEST(SavedTest, ACppModuleIsRead) {
  EXPECT_EQ(to_string(read_saved(MemorySource(bytes_of(golden("cpp_module.pt"))), "cpp_module.pt").value, 10000),
            "{'block': {'scale': tensor f32[2], 'count': tensor i64[], "
            "'inner': {'weight': tensor f32[2, 3], 'bias': tensor f32[2]}}, "
            "'norm': {'weight': tensor f32[2], 'bias': tensor f32[2], 'running_mean': tensor f32[2], "
            "'running_var': tensor f32[2], 'num_batches_tracked': tensor i64[]}, "
            "'half': {'weight': tensor bf16[2, 2]}}");
}

TEST(SavedTest, ScriptsListsAreListsAndOtherObjectsStay) {
  const Object list{.type = {"torch.jit._pickle", "build_intlist"}, .called = true, .arguments = {List{1, 2}}};
  const Object tagged{
      .type = {"torch.jit._pickle", "restore_type_tag"}, .called = true, .arguments = {list, "List[int]"}};
  const Object module{
      .type = {"__torch__.foo", "Module"},
      .state = std::make_shared<Value>(Dict{{{"list", tagged}, {"empty", Object{.type = {"__torch__", "M"}}}}})};
  const Object other{.type = {"datetime", "date"}, .called = true, .arguments = {1}};
  EXPECT_EQ(without_script_classes(Tuple{{module, other}}),
            Value(Tuple{{Dict{{{"list", List{1, 2}}, {"empty", Dict{}}}}, other}}));
}

// Strides of 0 let any number of elements lie in four bytes.
TEST(SavedTest, SizesThatCannotBeCountedAreRefused) {
  const auto saved = [](const Dims& sizes) {
    TensorRef tensor;
    tensor.storage = "0";
    tensor.storage_bytes = 4;
    tensor.sizes = sizes;
    tensor.strides = Dims(sizes.size(), 0);
    const std::string data(4, '\1');
    const StorageBytes storage{"0", bytes_of(data)};
    std::string bytes;
    write_archive(tensor, {&storage, 1}, [&](std::span<const std::byte> part) {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return bytes;
  };
  EXPECT_EQ(refused(saved({int64_t{1} << 36})), "nothing");
  EXPECT_NE(refused(saved({int64_t{1} << 36, int64_t{1} << 36})).find("a tensor has an impossible size"),
            std::string::npos);
}

TEST(SavedTest, SharedContainersStayShared) {
  const Value shared = List{1};
  const Value value = without_script_classes(List{shared, Tuple{{shared}}});
  EXPECT_EQ((*value.as<List>())[0].as<List>(), (*value.as<List>())[1].as<Tuple>()->items[0].as<List>());
}

// The memory of what a change has made must not be taken for that of what the next one makes.
TEST(SavedTest, WhatAChangeMakesIsItsOwn) {
  List given;
  List expected;
  for (int64_t i = 0; i < 100; ++i) {
    given.emplace_back(i);
    expected.emplace_back(Tuple{{List{std::to_string(i)}}});
  }
  const Value found = changed(given, [](const Value& part) -> std::optional<Value> {
    const auto* number = part.as<int64_t>();
    return number != nullptr ? std::optional<Value>(Tuple{{List{std::to_string(*number)}}}) : std::nullopt;
  });
  EXPECT_EQ(found, Value(expected));
}

struct Part {
  std::string name;
  std::string content;
};
std::string archive_with(const std::vector<Part>& parts) {
  std::string bytes;
  std::vector<ZipEntry> entries;
  for (const Part& part : parts) {
    entries.push_back({.name = part.name,
                       .offset = static_cast<int64_t>(bytes.size()),
                       .size = static_cast<int64_t>(part.content.size()),
                       .crc = crc32(bytes_of(part.content))});
    append_local_header(bytes, entries.back());
    bytes += part.content;
    append_descriptor(bytes, entries.back());
  }
  append_directory(bytes, entries, static_cast<int64_t>(bytes.size()));
  return bytes;
}

TEST(SavedTest, ATensorWithoutItsBytesIsRefused) {
  const TensorRef tensor{.dtype = DType::f32, .storage = "7", .storage_bytes = 8, .sizes = {2}, .strides = {1}};
  EXPECT_EQ(refused(archive_with({{"a/data.pkl", pickle(tensor)}, {"a/version", "3\n"}, {"a/data/7", "12345678"}})),
            "nothing");
  EXPECT_EQ(refused(archive_with({{"a/data.pkl", pickle(tensor)}, {"a/version", "3\n"}})),
            "read_saved: a tensor's bytes are not in the archive\n  in: m.pt\n  tensor: tensor f32[2]\n"
            "  record: data/7 of 8 bytes\n  there: none of that name");
  EXPECT_EQ(refused(archive_with({{"a/data.pkl", pickle(tensor)}, {"a/version", "3\n"}, {"a/data/7", "1234567"}})),
            "read_saved: a tensor's bytes are cut off\n  in: m.pt\n  tensor: tensor f32[2]\n"
            "  record: data/7 of 8 bytes\n  there: 7 bytes");
  EXPECT_EQ(refused(archive_with({{"a/version", "3\n"}})), "read_saved: it has no record \"data.pkl\"\n  in: m.pt");
}

}  // namespace
}  // namespace sherd::format
