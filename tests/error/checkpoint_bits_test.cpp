// One bit changed anywhere in any file that a save wrote: a load says so and names the file, or gives what was saved;
// whoever verifies is told in any case.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <stdexcept>

#include "sherd/inspect.h"
#include "sherd/sherd.h"
#include "stored/read_file.h"
#include "unit/stored/stored_files.h"

namespace sherd::testing {
namespace {

using ::testing::HasSubstr;

struct Written {
  const char* name;
  std::string path;
  SaveOptions options = {};
  bool on_base = false;
};

class CheckpointBitsTest : public ::testing::TestWithParam<Written> {};

StateDict make_state(bool filled) {
  const auto values = torch::arange(1, 7).view({2, 3});
  const auto kept = [&](const at::Tensor& tensor) { return filled ? tensor : torch::zeros_like(tensor); };
  return {{"w", kept(values.to(torch::kFloat))},
          {"h", kept(values.to(torch::kBFloat16))},
          {"n", filled ? 5 : 0},
          {"betas", filled ? StateTuple{{0.9, 0.99}} : StateValue()}};
}

void expect_state(const StateDict& state, const std::string& where) {
  const StateDict saved = make_state(true);
  for (const char* name : {"w", "h"}) {
    EXPECT_TRUE(state.at(name).tensor()->equal(*saved.at(name).tensor())) << where << " " << name;
  }
  ASSERT_NE(state.at("n").integer(), nullptr) << where;
  EXPECT_EQ(*state.at("n").integer(), 5) << where;
  ASSERT_NE(state.at("betas").tuple(), nullptr) << where;
  EXPECT_EQ(*state.at("betas").tuple()->items.at(1).number(), 0.99) << where;
}

// By their names in the folder, or as itself where the path is one file.
std::map<std::string, std::string> files_at(const Storage& storage, const std::string& path) {
  std::map<std::string, std::string> files;
  for (const std::string& name : storage.list(path)) {
    files[name] = stored::read_file(storage, storage.join(path, name));
  }
  if (files.empty()) files[Draft::kItself] = stored::read_file(storage, path);
  return files;
}

// Also where it is no checkpoint any more by its first bytes.
bool is_found(const std::shared_ptr<Storage>& storage, const std::string& path) {
  try {
    return !verify_checkpoint(path, {.storage = storage}).damage.empty();
  } catch (const std::runtime_error&) {
    return true;
  }
}

TEST_P(CheckpointBitsTest, AnywhereInAnyFile) {
  const auto storage = memory_storage();
  SaveOptions options = GetParam().options;
  options.storage = storage;
  const std::string path = GetParam().path;
  if (GetParam().on_base) {
    save(make_state(false), "base", options);
    options.base = "base";
  }
  spawn(2, [&](World&) { save(make_state(true), path, options); });
  const auto whole = files_at(*storage, path);
  size_t found = 0;
  size_t all = 0;
  for (const auto& [name, bytes] : whole) {
    const std::string file = name == Draft::kItself ? path : storage->join(path, name);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit, ++all) {
      const std::string where = fmt::format("{} byte {} bit {}", name, bit / 8, bit % 8);
      auto files = whole;
      files.at(name)[bit / 8] ^= static_cast<char>(1 << (bit % 8));
      stored::test::put(*storage, path, files);
      StateDict state = make_state(false);
      try {
        load(state, path, {.storage = storage});
        expect_state(state, where);
      } catch (const c10::Error& error) {
        ++found;
        EXPECT_THAT(error.what_without_backtrace(), HasSubstr(file)) << where;
      }
      try {
        expect_state(load_state_dict(path, {}, {.storage = storage}), where);
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what_without_backtrace(), HasSubstr(file)) << where;
      }
      // One bit of each byte: it reads everything each time.
      EXPECT_TRUE(bit % 8 != bit / 8 % 8 || is_found(storage, path)) << where;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(found, all / 2);  // the others are in what no reader needs
}

INSTANTIATE_TEST_SUITE_P(Formats, CheckpointBitsTest,
                         ::testing::Values(Written{"Folder", "ck"}, Written{"Compressed", "ck", {.compress = true}},
                                           Written{"Incremental", "ck", {}, true},
                                           Written{
                                               "SafetensorsFolder", "ck", {.format = CheckpointFormat::safetensors}},
                                           Written{"SafetensorsFile", "ck.safetensors"}, Written{"TorchFile", "ck.pt"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sherd::testing
