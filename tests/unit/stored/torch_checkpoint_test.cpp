// Files of torch.save and torch::save as checkpoints.

#include "stored/torch_checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "format/pickle.h"
#include "format/saved.h"
#include "sherd/convert.h"
#include "unit/stored/stored_files.h"

namespace sherd::stored {
namespace {

using format::Dict;
using format::List;
using format::Object;
using format::TensorRef;
using format::Tuple;
using format::Value;
using test::elements_of;
using test::object_of;

std::string golden(const std::string& name) {
  std::ifstream file(std::string(SHERD_SOURCE_DIR) + "/tests/golden/torch_save/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

class TorchCheckpointTest : public ::testing::Test {
 protected:
  std::unique_ptr<StoredCheckpoint> open(const std::string& bytes) {
    test::put(*storage_, "runs/m.pt", bytes);
    return open_checkpoint(storage_, "runs/m.pt");
  }
  // The numbers 0, 1, 2 ... as one storage, and a value that refers to it.
  std::unique_ptr<StoredCheckpoint> open(const Value& value, int64_t elements = 12) {
    return open(archive(value, elements));
  }
  static std::string archive(const Value& value, int64_t elements = 12) {
    std::vector<float> numbers(static_cast<size_t>(elements));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const format::StorageBytes storage{"0", std::as_bytes(std::span(numbers))};
    std::string bytes;
    format::write_archive(value, {&storage, 1}, [&](std::span<const std::byte> part) {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return bytes;
  }
  static TensorRef tensor(Dims sizes, Dims strides, int64_t offset = 0) {
    return {.storage = "0",
            .storage_bytes = 48,
            .offset = offset,
            .sizes = std::move(sizes),
            .strides = std::move(strides)};
  }
  std::string refused(const Value& value) {
    return test::refusal([&] { open(value); });
  }
  static Value value_of(const std::string& archive) {
    return format::read_saved(format::MemorySource(std::as_bytes(std::span(archive))), "object").value;
  }

  std::shared_ptr<Storage> storage_ = memory_storage();
};

std::string names_of(const StoredCheckpoint& checkpoint) {
  std::string text;
  for (const format::MetadataEntry& entry : checkpoint.metadata().entries) {
    const auto* tensor = std::get_if<format::TensorEntry>(&entry.content);
    text += entry.name + (tensor != nullptr ? " " + to_string(tensor->size) : "") + "\n";
  }
  return text;
}

TEST_F(TorchCheckpointTest, AStateDictOfPythonHasTheNamesOfDistributedCheckpoints) {
  const auto checkpoint = open(golden("python_state.pt"));
  EXPECT_STREQ(checkpoint->format(), "torch.save");
  EXPECT_EQ(checkpoint->metadata().files, std::vector<std::string>{"m.pt"});
  EXPECT_EQ(names_of(*checkpoint),
            "model.weight [2, 3]\nmodel.bias [2]\noptimizer.state.0.step []\noptimizer.state.0.exp_avg [2, 3]\n"
            "optimizer.param_groups.0.lr\noptimizer.param_groups.0.betas\noptimizer.param_groups.0.params\n"
            "view [3]\nepoch\n");
  EXPECT_EQ(elements_of<float>(*checkpoint, "model.weight"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "view"), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(value_of(object_of(*checkpoint, "epoch")), Value(3));
  EXPECT_EQ(value_of(object_of(*checkpoint, "optimizer.param_groups.0.betas")), Value(Tuple{{0.9, 0.999}}));
  using Path = std::vector<format::PathPart>;
  const auto& paths = *checkpoint->metadata().paths;
  EXPECT_EQ(paths[0].second, (Path{"model", "weight"}));
  EXPECT_EQ(paths[2].second, (Path{"optimizer", "state", 0, "step"}));
}

TEST_F(TorchCheckpointTest, AModuleOfCppHasTheNamesOfPython) {
  const auto checkpoint = open(golden("cpp_module.pt"));
  EXPECT_EQ(
      names_of(*checkpoint),
      "block.scale [2]\nblock.count []\nblock.inner.weight [2, 3]\nblock.inner.bias [2]\nnorm.weight [2]\n"
      "norm.bias [2]\nnorm.running_mean [2]\nnorm.running_var [2]\nnorm.num_batches_tracked []\nhalf.weight [2, 2]\n");
}

TEST_F(TorchCheckpointTest, ViewsOfOneStorageAreEachThemselves) {
  const Dict state{{{"matrix", tensor({3, 4}, {4, 1})},
                    {"transposed", tensor({4, 3}, {1, 4})},
                    {"row", tensor({4}, {1}, 4)},
                    {"column", tensor({3}, {4}, 1)},
                    {"square", tensor({3, 3}, {1, 3})},
                    {"expanded", tensor({2, 3}, {0, 1}, 9)},
                    {"scalar", tensor({}, {}, 11)},
                    {"empty", tensor({0, 3}, {3, 1})}}};
  const auto checkpoint = open(state);
  EXPECT_EQ(elements_of<float>(*checkpoint, "matrix"), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "transposed"), (std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "row"), (std::vector<float>{4, 5, 6, 7}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "column"), (std::vector<float>{1, 5, 9}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "square"), (std::vector<float>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "expanded"), (std::vector<float>{9, 10, 11, 9, 10, 11}));
  EXPECT_EQ(elements_of<float>(*checkpoint, "scalar"), std::vector<float>{11});
  EXPECT_EQ(elements_of<float>(*checkpoint, "empty"), std::vector<float>{});
}

TEST_F(TorchCheckpointTest, ListsOfTensorsAreTakenApartAndTuplesAreNot) {
  const TensorRef row = tensor({2}, {1}, 2);
  const auto checkpoint = open(Dict{{{"list", List{row, Dict{{{"deep", row}}}, 7}},
                                     {"plain", List{1, List{2}}},
                                     {"tuple", Tuple{{row, 1}}},
                                     {"nothing", Dict{}},
                                     {"none", format::None{}},
                                     {2.5, row},
                                     {true, row}}});
  EXPECT_EQ(names_of(*checkpoint),
            "list.0 [2]\nlist.1.deep [2]\nlist.2\nplain\ntuple\nnothing\nnone\n2.5 [2]\nTrue [2]\n");
  EXPECT_EQ(value_of(object_of(*checkpoint, "plain")), Value(List{1, List{2}}));
  EXPECT_EQ(value_of(object_of(*checkpoint, "nothing")), Value(Dict{}));
  // A tensor inside of an object comes with its bytes.
  const std::string tuple = object_of(*checkpoint, "tuple");
  EXPECT_EQ(value_of(tuple), Value(Tuple{{row, 1}}));
}

TEST_F(TorchCheckpointTest, AModuleThatWasPickledWholeIsItsStateDict) {
  const auto module = [](Dict parameters, Dict buffers, Dict modules, format::Set passing = {}) {
    return Object{.type = {"my.model", "Net"},
                  .state = std::make_shared<Value>(Dict{{{"training", true},
                                                         {"_parameters", std::move(parameters)},
                                                         {"_buffers", std::move(buffers)},
                                                         {"_non_persistent_buffers_set", std::move(passing)},
                                                         {"_modules", std::move(modules)}}})};
  };
  const TensorRef row = tensor({2}, {1});
  const Object inner = module({{{"weight", row}, {"bias", format::None{}}}}, {}, {});
  const auto checkpoint =
      open(Value(module({}, {{{"mean", row}, {"mask", row}}}, {{{"inner", inner}}}, {.items = {"mask"}})));
  EXPECT_EQ(names_of(*checkpoint), "mean [2]\ninner.weight [2]\n");
}

TEST_F(TorchCheckpointTest, ATensorAloneIsAValue) {
  EXPECT_EQ(names_of(*open(Value(tensor({2}, {1})))), "value [2]\n");
  EXPECT_EQ(names_of(*open(Value("text"))), "value\n");
}

TEST_F(TorchCheckpointTest, ATensorWithoutDataIsRefusedWhenItIsRead) {
  TensorRef meta = tensor({2}, {1});
  meta.meta = true;
  const auto checkpoint = open(Dict{{{"m", meta}, {"t", tensor({2}, {1})}}});
  EXPECT_EQ(elements_of<float>(*checkpoint, "t"), (std::vector<float>{0, 1}));
  EXPECT_EQ(test::refusal([&] { elements_of<float>(*checkpoint, "m"); }),
            "load: a tensor was saved without its data (meta)\n  file: runs/m.pt\n  reading: m\n"
            "  help: another checkpoint, or a state without this key");
}

TEST_F(TorchCheckpointTest, TwoValuesOfOneNameAreRefused) {
  EXPECT_EQ(refused(Dict{{{"a.b", 1}, {"a", Dict{{{"b", 2}}}}}}),
            "read_saved: two values have one name\n  in: runs/m.pt\n  name: a.b\n"
            "  help: keys whose parts, joined by dots, differ");
}

TEST_F(TorchCheckpointTest, AValueThatUnfoldsIntoTooMuchIsRefused) {
  // Each level has the one below it twice.
  Value value = Dict{{{"t", 1}}};
  for (int i = 0; i < 60; ++i) value = Dict{{{"a", value}, {"b", value}}};
  const std::string text = refused(value);
  EXPECT_EQ(text.substr(0, text.find("  found")),
            "read_saved: the value unfolds into too many parts\n  in: runs/m.pt\n");
}

// A container is looked at once, however often it is there: else this takes hours.
TEST_F(TorchCheckpointTest, AContainerThatIsThereManyTimesIsLookedAtOnce) {
  Dict dict;
  Dict attributes;
  for (int i = 0; i < 10'000; ++i) {
    dict.items.emplace_back(i + 0.5, i);
    attributes.items.emplace_back(fmt::format("a{}", i), i);
  }
  const Object object{.type = {"somewhere", "Class"}, .state = std::make_shared<Value>(attributes)};
  for (const Value& value : {Value(dict), Value(object)}) {
    const auto checkpoint = open(Dict{{{"w", tensor({2}, {1})}, {"many", List(100'000, value)}}});
    EXPECT_EQ(names_of(*checkpoint), "w [2]\nmany\n");
  }
}

TEST_F(TorchCheckpointTest, ADamagedTensorIsFound) {
  std::string bytes = archive(Dict{{{"w", tensor({12}, {1})}}});
  const auto whole = open(bytes);
  const auto& entry = std::get<format::TensorEntry>(whole->metadata().find("w")->content);
  bytes[static_cast<size_t>(entry.places[0].offset) + 5] ^= 1;
  const auto damaged = open(bytes);
  const std::string text = test::refusal([&] { elements_of<float>(*damaged, "w"); });
  EXPECT_EQ(text.substr(0, text.find("  CRC saved")),
            fmt::format("load: a file is damaged: its bytes are not those that were saved\n  file: runs/m.pt\n"
                        "  bytes: {} to {}\n",
                        entry.places[0].offset, entry.places[0].offset + 48));
}

// A transposed matrix, channels last: their elements lie in the file without gaps, in another order.
TEST_F(TorchCheckpointTest, DamageIsFoundInWhateverOrderTheElementsLie) {
  const std::pair<Dims, Dims> layouts[] = {{{3, 4}, {1, 3}}, {{2, 3, 2}, {1, 4, 2}}, {{2, 1, 6}, {1, 7, 2}}};
  for (const auto& [sizes, strides] : layouts) {
    std::string bytes = archive(Dict{{{"w", tensor(sizes, strides)}}});
    const auto whole = open(bytes);
    const auto numbers = elements_of<float>(*whole, "w");
    EXPECT_EQ(numbers[1], static_cast<float>(strides.back()));
    const auto& entry = std::get<format::TensorEntry>(whole->metadata().find("w")->content);
    for (int64_t byte = 0; byte < 48; ++byte) {
      bytes[static_cast<size_t>(entry.places[0].offset + byte)] ^= 1;
      const auto damaged = open(bytes);
      EXPECT_NE(test::refusal([&] { elements_of<float>(*damaged, "w"); }).find("CRC found"), std::string::npos) << byte;
      for (const char* target : {"runs/b.pt", "runs/b.safetensors", "runs/b"}) {
        const RewriteOptions options{.from_storage = storage_, .to_storage = storage_};
        const std::string text = test::refusal([&] { rewrite_checkpoint({"runs/m.pt"}, target, options); });
        EXPECT_NE(text.find("CRC found"), std::string::npos) << target << ": " << text;
      }
      bytes[static_cast<size_t>(entry.places[0].offset + byte)] ^= 1;
    }
  }
}

TEST_F(TorchCheckpointTest, ALargeTransposedTensorIsComparedPieceByPiece) {
  constexpr int64_t kRows = 2100;
  TensorRef large = tensor({kRows, kRows}, {1, kRows});
  large.storage_bytes = kRows * kRows * 4;
  std::string bytes = archive(Dict{{{"w", large}}}, kRows * kRows);
  const auto whole = open(bytes);
  const auto numbers = elements_of<float>(*whole, "w");
  EXPECT_EQ(numbers[kRows + 2], static_cast<float>(1 + 2 * kRows));
  const auto& entry = std::get<format::TensorEntry>(whole->metadata().find("w")->content);
  for (const int64_t byte : {int64_t{0}, kRows * kRows * 2, kRows * kRows * 4 - 1}) {
    std::string damaged = bytes;
    damaged[static_cast<size_t>(entry.places[0].offset + byte)] ^= 1;
    const auto checkpoint = open(damaged);
    const std::string text = test::refusal([&] { elements_of<float>(*checkpoint, "w"); });
    EXPECT_NE(text.find("CRC found"), std::string::npos) << byte;
  }
}

TEST_F(TorchCheckpointTest, FilesOfOtherMachinesAndTimesAreRefused) {
  EXPECT_EQ(test::refusal([&] { open(std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15)); }),
            "load: a file of torch.save of before PyTorch 1.6 is not read\n  file: runs/m.pt\n"
            "  help: torch.save(torch.load(path), path) with a PyTorch since 1.6 writes it anew");
  std::string bytes = archive(Dict{{{"w", tensor({12}, {1})}}});
  const size_t at = bytes.find("little");
  bytes.replace(at, 6, "bigbig");
  const size_t crc = at + 6 + 4;
  const uint32_t sum = format::crc32(std::as_bytes(std::span("bigbig", 6)));
  std::memcpy(bytes.data() + crc, &sum, 4);
  const size_t directory = bytes.rfind("archive/byteorder") - 46 + 16;
  std::memcpy(bytes.data() + directory, &sum, 4);
  EXPECT_EQ(test::refusal([&] { open(bytes); }),
            "read_saved: its numbers are not little endian\n  in: runs/m.pt\n  byteorder: bigbig\n"
            "  help: on a little-endian machine, torch.save(torch.load(path), path) writes it in that order");
}

TEST_F(TorchCheckpointTest, CutAnywhereItIsRefused) {
  const std::string bytes = archive(Dict{{{"w", tensor({12}, {1})}, {"o", 1}}});
  for (size_t length = 0; length < bytes.size(); length += 7) {
    const std::string text = test::refusal([&] {
      const auto checkpoint = open(bytes.substr(0, length));
      elements_of<float>(*checkpoint, "w");
    });
    EXPECT_NE(text, "nothing") << length;
  }
}

}  // namespace
}  // namespace sherd::stored
