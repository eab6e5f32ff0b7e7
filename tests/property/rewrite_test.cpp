// A checkpoint that goes through formats, ranks and names is still the same.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "crash/passing_storage.h"
#include "format/archive.h"
#include "format/safetensors.h"
#include "format/saved.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "stored/copy_elements.h"
#include "stored/read_file.h"
#include "stored/stored_checkpoint.h"
#include "unit/stored/stored_files.h"

namespace sherd::stored::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Random = std::mt19937;
int64_t below(Random& random, int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); }

struct Tensor {
  format::DType dtype;
  Dims size;
  std::string bytes;
};
using State = std::map<std::string, Tensor>;

Tensor random_tensor(Random& random, format::DType dtype, Dims size) {
  std::string bytes(static_cast<size_t>(numel(size) * size_of(dtype)), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return {dtype, std::move(size), std::move(bytes)};
}

bool safetensors_holds(format::DType dtype) { return !format::names_of(dtype).safetensors.empty(); }

State random_state(Random& random) {
  State state;
  for (size_t i = 0; i < format::kDTypeCount; ++i) {
    const auto dtype = static_cast<format::DType>(i);
    if (!safetensors_holds(dtype)) continue;
    Dims size(static_cast<size_t>(below(random, 5)));
    if (dtype == format::DType::f4_e2m1fn_x2 && size.empty()) size = {1};  // half a byte is not to be had
    for (int64_t& rows : size) rows = below(random, 9) == 0 ? 0 : 1 + below(random, 12);
    state["model.t" + std::to_string(i)] = random_tensor(random, dtype, size);
  }
  return state;
}

// torch.save of {"model": {...}, "step": 7, "betas": (0.9, 0.99), "groups": [{"lr": 0.1}, {"lr": 0.2}]}.
std::string saved(const State& state) {
  format::Dict model;
  std::vector<format::StorageBytes> storages;
  for (const auto& [name, tensor] : state) {
    format::TensorRef ref;
    ref.dtype = tensor.dtype;
    ref.storage = std::to_string(storages.size());
    ref.storage_bytes = static_cast<int64_t>(tensor.bytes.size());
    ref.sizes = tensor.size;
    ref.strides = row_major(tensor.size);
    model.items.emplace_back(name.substr(6), ref);
    storages.push_back({ref.storage, std::as_bytes(std::span(tensor.bytes))});
  }
  format::List groups;
  for (const double lr : {0.1, 0.2}) {
    format::Dict group;
    group.items.emplace_back("lr", lr);
    groups.emplace_back(group);
  }
  format::Dict root;
  root.items = {{"model", model},
                {"step", 7},
                {"betas", format::Tuple{{format::Value(0.9), format::Value(0.99)}}},
                {"groups", groups}};
  std::string bytes;
  format::write_archive(root, storages, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

void expect_same(const std::shared_ptr<Storage>& storage, const std::string& path, const State& state) {
  const auto checkpoint = open_checkpoint(storage, path);
  for (const auto& [name, tensor] : state) {
    const StoredValues values = read_stored(path, name, {}, {.storage = storage});
    EXPECT_EQ(values.dtype, format::names_of(tensor.dtype).text) << name;
    EXPECT_EQ(values.size, tensor.size) << name;
    const auto bytes = std::as_bytes(std::span(tensor.bytes));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), values.bytes.begin(), values.bytes.end())) << name;
  }
  for (const char* name : {"step", "betas", "groups.0.lr"}) {
    const auto* entry = checkpoint->metadata().find(name);
    ASSERT_NE(entry, nullptr) << name;
    const std::string archive = object_of(*checkpoint, name);
    const format::MemorySource source(std::as_bytes(std::span(archive)));
    const format::Value expected = name == std::string("step")    ? format::Value(7)
                                   : name == std::string("betas") ? format::Value(format::Tuple{{0.9, 0.99}})
                                                                  : format::Value(0.1);
    EXPECT_EQ(format::read_saved(source, name).value, expected) << name;
  }
  EXPECT_EQ(checkpoint->metadata().entries.size(), state.size() + 4);
  const VerifyResult verified = verify_checkpoint(path, {.storage = storage});
  for (const Damage& damage : verified.damage) ADD_FAILURE() << to_string(damage);
}

RankLayouts random_layouts(Random& random) {
  const Dims axes = {1 + below(random, 4), 1 + below(random, 3)};
  const auto seed = static_cast<unsigned>(random());
  return {parse_mesh("[a=" + std::to_string(axes[0]) + ", b=" + std::to_string(axes[1]) + "]"),
          [seed](const std::string& name, const Dims& size) {
            Random own(seed + static_cast<unsigned>(std::hash<std::string>()(name)));
            Placements placements(2, Replicate());
            for (Placement& placement : placements) {
              if (!size.empty() && below(own, 3) > 0) placement = Shard(below(own, static_cast<int64_t>(size.size())));
            }
            return placements;
          }};
}

TEST(Rewrite, EveryWayThroughTheFormatsKeepsEverything) {
  Random random(11);  // NOLINT: the same every time
  for (int round = 0; round < 15; ++round) {
    const State state = random_state(random);
    const auto storage = memory_storage();
    const std::string original = saved(state);
    put(*storage, "0.pt", original);
    std::string path = "0.pt";
    for (int hop = 1; hop <= 6; ++hop) {
      RewriteOptions options{.from_storage = storage, .to_storage = storage};
      std::string to = std::to_string(hop);
      switch (below(random, 5)) {
        case 0:
          break;  // dcp as it lies
        case 1:
          options.layouts = random_layouts(random);
          break;
        case 2:
          to += ".safetensors";
          break;
        case 3:
          options.format = CheckpointFormat::safetensors;
          options.file_bytes = 2000;
          break;
        default:
          to += ".pt";
      }
      SCOPED_TRACE(path + " -> " + to);
      rewrite_checkpoint({path}, to, options);
      expect_same(storage, to, state);
      path = to;
    }
    rewrite_checkpoint({path}, "last.pt", {.from_storage = storage, .to_storage = storage});
    // Nesting and order of kinds came through, too.
    const auto value_of = [](const std::string& bytes) {
      const format::MemorySource source(std::as_bytes(std::span(bytes)));
      return format::to_string(format::read_saved(source, "x").value.as<format::Dict>()->find("groups") != nullptr
                                   ? *format::read_saved(source, "x").value.as<format::Dict>()->find("groups")
                                   : format::Value("lost"));
    };
    EXPECT_EQ(value_of(read_file(*storage, "last.pt")), value_of(original));
  }
}

TEST(Rewrite, ALargeTensorIsPutTogetherInAnyOrder) {
  Random random(3);  // NOLINT
  const auto storage = memory_storage();
  State state;
  state["model.wide"] = random_tensor(random, format::DType::c128, {1111, 1201});  // 21 MB, of 16 bytes each
  state["model.bytes"] = random_tensor(random, format::DType::u8, {10'000'019});
  put(*storage, "0.pt", saved(state));
  const RewriteOptions both{.from_storage = storage, .to_storage = storage};
  const auto with = [&](auto change) {
    RewriteOptions options = both;
    change(options);
    return options;
  };
  rewrite_checkpoint({"0.pt"}, "whole", both);
  rewrite_checkpoint({"whole"}, "columns", with([](RewriteOptions& options) {
                       options.layouts = RankLayouts{parse_mesh("[3]"), [](const std::string&, const Dims& size) {
                                                       return Placements{Shard(static_cast<int64_t>(size.size()) - 1)};
                                                     }};
                     }));
  rewrite_checkpoint({"columns"}, "rows", with([](RewriteOptions& options) { options.layouts = sharded_over(7); }));
  rewrite_checkpoint({"rows"}, "1.pt", both);
  for (const char* path : {"whole", "columns", "rows", "1.pt"}) expect_same(storage, path, state);
}

// Everything that is in a checkpoint, as text; what was thrown where it cannot be read.
std::string all_of(const std::shared_ptr<Storage>& storage, const std::string& path) {
  std::string all;
  const std::string thrown = refusal([&] {
    const auto checkpoint = open_checkpoint(storage, path);
    for (const auto& entry : checkpoint->metadata().entries) {
      all += entry.name + "=";
      if (std::holds_alternative<format::BytesEntry>(entry.content)) {
        all += object_of(*checkpoint, entry.name);
      } else {
        const StoredValues values = read_stored(path, entry.name, {}, {.storage = storage});
        all.append(reinterpret_cast<const char*>(values.bytes.data()), values.bytes.size());
      }
    }
  });
  return thrown == "nothing" ? all : "thrown: " + thrown;
}

TEST(Rewrite, OneFlippedBitOfAFileIsFoundWhereverItIs) {
  const auto storage = memory_storage();
  put(*storage, "0.pt", saved({{"model.a", {format::DType::f32, {2}, "abcdefgh"}}}));
  const RewriteOptions options{.from_storage = storage, .to_storage = storage};
  for (const std::string path : {"whole.pt", "whole.safetensors"}) {
    rewrite_checkpoint({"0.pt"}, path, options);
    const std::string whole = read_file(*storage, path);
    ASSERT_THAT(all_of(storage, path), HasSubstr("model.a=abcdefgh"));
    for (size_t i = 0; i < whole.size() * 8; ++i) {
      std::string damaged = whole;
      damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
      put(*storage, path, damaged);
      const std::string found = all_of(storage, path);
      ASSERT_THAT(found, HasSubstr("thrown: ")) << path << ", bit " << i % 8 << " of byte " << i / 8;
      ASSERT_THAT(found, HasSubstr(path)) << "bit " << i % 8 << " of byte " << i / 8;
    }
  }
}

// The files say the same once more.
TEST(Rewrite, OneFlippedBitOfAnIndexIsFoundOrHasNoMeaning) {
  const auto storage = memory_storage();
  const Tensor a{format::DType::u8, {2}, "ab"};
  const Tensor b{format::DType::u8, {2}, "cd"};
  put(*storage, "0.pt", saved({{"model.a", a}, {"model.b", b}}));
  RewriteOptions options{.from_storage = storage, .to_storage = storage};
  options.format = CheckpointFormat::safetensors;
  options.file_bytes = 2;
  rewrite_checkpoint({"0.pt"}, "whole", options);
  std::map<std::string, std::string> files;
  for (const std::string& name : storage->list("whole")) files[name] = read_file(*storage, "whole/" + name);
  const std::string index = files.at("model.safetensors.index.json");
  const std::string whole = all_of(storage, "whole");
  ASSERT_THAT(whole, HasSubstr("model.b=cd"));
  for (size_t i = 0; i < index.size() * 8; ++i) {
    std::string& damaged = files.at("model.safetensors.index.json") = index;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
    put(*storage, "damaged", files);
    const std::string found = all_of(storage, "damaged");
    if (found == whole) continue;
    ASSERT_THAT(found, HasSubstr("thrown: ")) << damaged;
  }
  // Who verifies is told which file it is: here the index, and the header of one of the others.
  for (const char* name : {"model.safetensors.index.json", "model-00002-of-00002.safetensors"}) {
    auto changed = files;
    changed["model.safetensors.index.json"] = index;
    changed.at(name)[20] ^= 1;
    put(*storage, "damaged", changed);
    const auto damage = verify_checkpoint("damaged", {.storage = storage}).damage;
    ASSERT_FALSE(damage.empty());
    EXPECT_EQ(damage.front().file, name);
  }
}

TEST(Rewrite, DamageIsFoundWhereAPartOfATensorIsRead) {
  const auto storage = memory_storage();
  Random random(5);  // NOLINT: the same every time
  put(*storage, "0.pt", saved({{"model.a", random_tensor(random, format::DType::u8, {4096, 1024})}}));
  const RewriteOptions options{.from_storage = storage, .to_storage = storage};
  for (const std::string path : {"whole.pt", "whole.safetensors"}) {
    rewrite_checkpoint({"0.pt"}, path, options);
    const Box rows{{2100, 0}, {3, 1024}};
    EXPECT_EQ(refusal([&] { read_stored(path, "model.a", rows, {.storage = storage}); }), "nothing");
    std::string damaged = read_file(*storage, path);
    damaged[2200 * 1024] = static_cast<char>(damaged[2200 * 1024] ^ 1);  // in the same block
    put(*storage, path, damaged);
    const std::string thrown = refusal([&] { read_stored(path, "model.a", rows, {.storage = storage}); });
    EXPECT_THAT(thrown, HasSubstr("its bytes are not those that were saved\n  file: " + path +
                                  "\n  bytes: 2097152 to 3145728\n"));
    EXPECT_THAT(thrown, HasSubstr("model.a"));
    const VerifyResult verified = verify_checkpoint(path, {.storage = storage});
    ASSERT_EQ(verified.damage.size(), 1U) << path;
    EXPECT_THAT(to_string(verified.damage[0]),
                HasSubstr(path + ", bytes 2097152 to 3145728: the bytes are not those that were saved (model.a)"));
    EXPECT_THAT(verified.unchecked, IsEmpty());
  }
}

// Programs that change tensors keep the texts of the file, digests too.
TEST(Rewrite, DigestsOfAFileThatWasWrittenAnewAreLeftAside) {
  const auto storage = memory_storage();
  put(*storage, "0.pt", saved({{"model.a", {format::DType::u8, {2}, "ab"}}}));
  rewrite_checkpoint({"0.pt"}, "a.safetensors", {.from_storage = storage, .to_storage = storage});
  const std::string written = read_file(*storage, "a.safetensors");
  auto file = format::read_safetensors(format::MemorySource(std::as_bytes(std::span(written))), "a");
  ASSERT_NE(file.find_metadata("sherd.digests"), nullptr);
  put(*storage, "a.safetensors", format::lay_out_safetensors(file) + "xy");
  EXPECT_THAT(all_of(storage, "a.safetensors"), HasSubstr("model.a=xy"));
}

TEST(Rewrite, NamesAreChosenAndChanged) {
  Random random(5);  // NOLINT
  const auto storage = memory_storage();
  State state;
  for (const char* name : {"model.a.weight", "model.a.bias", "model.b.weight"}) {
    state[name] = random_tensor(random, format::DType::f32, {3});
  }
  put(*storage, "0.pt", saved(state));
  const auto names = [&](RewriteOptions options) {
    options.from_storage = options.to_storage = storage;
    options.overwrite = true;
    rewrite_checkpoint({"0.pt"}, "out", options);
    std::vector<std::string> found;
    const auto checkpoint = open_checkpoint(storage, "out");
    for (const auto& entry : checkpoint->metadata().entries) found.push_back(entry.name);
    std::sort(found.begin(), found.end());
    return found;
  };
  EXPECT_THAT(names({.only = {"model.*"}}), ElementsAre("model.a.bias", "model.a.weight", "model.b.weight"));
  EXPECT_THAT(names({.only = {"*.weight", "step"}, .drop = {"model.b.*"}}), ElementsAre("model.a.weight", "step"));
  EXPECT_THAT(names({.only = {"model.*"}, .rename = {{"model.*.weight", "*.gamma"}, {"model.*", "rest.*"}}}),
              ElementsAre("a.gamma", "b.gamma", "rest.a.bias"));
  // Where names stood in the state goes along.
  names({.only = {"model.*"}, .rename = {{"model.*", "net.*"}}});
  const auto paths = *open_checkpoint(storage, "out")->metadata().paths;
  EXPECT_EQ(paths.front().second, (std::vector<format::PathPart>{"net", paths.front().first.substr(4)}));
}

format::Dict dict_of(std::vector<std::pair<format::Value, format::Value>> items, bool ordered = false) {
  return {.items = std::move(items), .ordered = ordered};
}

// A file of torch.save through these paths, one after the other; the last one is such a file again.
format::Value through(const std::shared_ptr<Storage>& storage, const format::Value& value,
                      const std::vector<std::string>& paths, const std::vector<Renaming>& rename = {}) {
  put(*storage, "from.pt", format::archive_of(value));
  std::string from = "from.pt";
  for (const std::string& to : paths) {
    rewrite_checkpoint({from}, to,
                       {.rename = from == "from.pt" ? rename : std::vector<Renaming>(),
                        .overwrite = true,
                        .from_storage = storage,
                        .to_storage = storage});
    from = to;
  }
  const std::string bytes = read_file(*storage, from);
  return format::read_saved(format::MemorySource(std::as_bytes(std::span(bytes))), from).value;
}

const std::vector<std::vector<std::string>> kWays = {{"to.pt"}, {"by", "to.pt"}, {"by.safetensors", "to.pt"}};

TEST(Rewrite, KindsOfContainersFollowTheirNewNames) {
  const auto storage = memory_storage();
  const format::Dict numbered = dict_of({{0, 1}, {1, 2}});
  format::Dict ordered = dict_of({{"z", 3}, {"a", 4}}, /*ordered=*/true);
  ordered.state = std::make_shared<format::Value>(dict_of({{"_metadata", dict_of({{"", dict_of({{"version", 1}})}})}}));
  const format::List list = {dict_of({{"lr", 0.5}}), dict_of({{"lr", 0.25}})};
  const format::Dict numbers_in_list = dict_of({{7, dict_of({{"x", 1}})}});
  const format::Value value = dict_of(
      {{"m", dict_of({{"d", numbered}, {"o", ordered}})}, {"g", list}, {"deep", dict_of({{"in", numbers_in_list}})}});
  for (const auto& way : kWays) {
    SCOPED_TRACE(way.front());
    EXPECT_EQ(through(storage, value, way), value);
    EXPECT_EQ(through(storage, value, way, {{"m.*", "net.*"}, {"g.*", "groups.*"}, {"deep.in.*", "up.*"}}),
              format::Value(dict_of(
                  {{"net", dict_of({{"d", numbered}, {"o", ordered}})}, {"groups", list}, {"up", numbers_in_list}})));
    EXPECT_EQ(through(storage, value, way, {{"*", "all.*"}}),
              format::Value(dict_of({{"all.m", dict_of({{"d", numbered}, {"o", ordered}})},
                                     {"all.g", list},
                                     {"all.deep", dict_of({{"in", numbers_in_list}})}})));
  }
}

TEST(Rewrite, AListAndADictDoNotBecomeOne) {
  const auto storage = memory_storage();
  const format::Value part = dict_of({{"a", 1}});
  put(*storage, "list.pt", format::archive_of(dict_of({{"x", format::List{part, part}}})));
  put(*storage, "dict.pt", format::archive_of(dict_of({{"x", dict_of({{5, part}})}})));
  put(*storage, "more.pt", format::archive_of(dict_of({{"x", dict_of({{0, part}})}})));
  const auto merge = [&](const std::vector<std::string>& from) {
    rewrite_checkpoint(from, "to.pt", {.overwrite = true, .from_storage = storage, .to_storage = storage});
    const std::string bytes = read_file(*storage, "to.pt");
    return format::read_saved(format::MemorySource(std::as_bytes(std::span(bytes))), "to.pt").value;
  };
  EXPECT_EQ(refusal([&] {
              merge({"list.pt", "dict.pt"});
            }),
            "convert: a list and a dict would become one container\n  container: x\n  a list in: list.pt, x\n"
            "  a dict in: dict.pt, x\n  help: a pattern that tells them apart, such as --rename \"*=a.*\"");
  EXPECT_EQ(merge({"dict.pt", "more.pt"}), format::Value(dict_of({{"x", dict_of({{5, part}, {0, part}})}})));
}

TEST(Rewrite, AnEmptyNameIsANameAndNoRenamingMakesOne) {
  const auto storage = memory_storage();
  for (const format::Value& value : {format::Value(dict_of({{"", 1}, {"b", 2}})),
                                     format::Value(dict_of({{"a", dict_of({{"", 1}})}, {"b", dict_of({{"c", 2}})}})),
                                     format::Value(dict_of({{"", dict_of({{"", 1}, {"c", 2}})}}))}) {
    for (const auto& way : kWays) EXPECT_EQ(through(storage, value, way), value) << way.front();
  }
  EXPECT_EQ(refusal([&] {
              through(storage, dict_of({{"b", 2}}), {"to.pt"}, {{"b*", "*"}});
            }),
            "convert: renaming leaves nothing of a name\n  name: b\n"
            "  help: another new name, or --drop (RewriteOptions{.drop}) to leave it out");
}

TEST(Rewrite, KeysKeepTheirOrder) {
  const auto storage = memory_storage();
  format::TensorRef ref;
  ref.dtype = format::DType::u8;
  ref.storage = "0";
  ref.storage_bytes = 2;
  ref.sizes = {2};
  ref.strides = {1};
  const std::string bytes = "xy";
  const std::vector<format::StorageBytes> storages = {{"0", std::as_bytes(std::span(bytes))}};
  std::string file;
  format::write_archive(
      dict_of({{"m", dict_of({{"z", 1}, {"a", ref}, {"b", 2}})}}), storages,
      [&](std::span<const std::byte> part) { file.append(reinterpret_cast<const char*>(part.data()), part.size()); });
  put(*storage, "0.pt", file);
  std::string from = "0.pt";
  for (const std::string to : {"1", "2.safetensors", "3", "4.pt"}) {
    rewrite_checkpoint({from}, to, {.from_storage = storage, .to_storage = storage});
    std::vector<std::string> names;
    const auto checkpoint = open_checkpoint(storage, to);
    for (const auto& entry : checkpoint->metadata().entries) names.push_back(entry.name);
    EXPECT_THAT(names, ElementsAre("m.z", "m.a", "m.b")) << to;
    from = to;
  }
}

TEST(Rewrite, NothingIsACheckpointToo) {
  const auto storage = memory_storage();
  for (const auto& way : kWays) EXPECT_EQ(through(storage, dict_of({}), way).as<format::Dict>()->items.size(), 0U);
}

TEST(Rewrite, SeveralBecomeOne) {
  Random random(6);  // NOLINT
  const auto storage = memory_storage();
  State first;
  State second;
  first["model.a"] = random_tensor(random, format::DType::f32, {4, 5});
  second["model.b"] = random_tensor(random, format::DType::f16, {6});
  put(*storage, "a.pt", saved(first));
  put(*storage, "b.pt", saved(second));
  rewrite_checkpoint({"b.pt"}, "b.safetensors", {.only = {"model.*"}, .from_storage = storage, .to_storage = storage});
  rewrite_checkpoint({"a.pt", "b.safetensors"}, "both", {.from_storage = storage, .to_storage = storage});
  State both = first;
  both.insert(second.begin(), second.end());
  expect_same(storage, "both", both);
  EXPECT_THAT(refusal([&] {
                rewrite_checkpoint({"a.pt", "b.pt"}, "x", {.from_storage = storage, .to_storage = storage});
              }),
              HasSubstr("convert: two entries have one name\n  name: step\n  in: a.pt\n  and in: b.pt"));
}

TEST(Rewrite, StoppedAnywhereItLeavesWhatWasThere) {
  Random random(8);  // NOLINT
  const auto storage = memory_storage();
  State state;
  state["model.a"] = random_tensor(random, format::DType::u8, {30'000'000});
  put(*storage, "0.pt", saved(state));
  put(*storage, "out.pt", "the old one");
  for (int stop = 1; stop <= 4; ++stop) {
    int calls = 0;
    RewriteOptions options{.overwrite = true, .from_storage = storage, .to_storage = storage};
    options.progress = [&](int64_t, int64_t) {
      if (++calls == stop) throw std::runtime_error("stop");
    };
    EXPECT_EQ(refusal([&] { rewrite_checkpoint({"0.pt"}, "out.pt", options); }), "stop");
    EXPECT_EQ(read_file(*storage, "out.pt"), "the old one");
    EXPECT_THAT(storage->drafts("out.pt"), IsEmpty());
  }
}

// Calls something before a file is opened for the second time.
class AtSecondOpen final : public sherd::testing::PassingStorage {
 public:
  AtSecondOpen(std::shared_ptr<Storage> storage, std::string path, std::function<void()> call)
      : PassingStorage(std::move(storage)), path_(std::move(path)), call_(std::move(call)) {}
  std::unique_ptr<StoredFile> open(const std::string& path) const override {
    if (path == path_ && ++opened_ == 2) call_();
    return PassingStorage::open(path);
  }

 private:
  std::string path_;
  std::function<void()> call_;
  mutable std::atomic<int> opened_ = 0;
};

// Names and sizes are the same: what was planned with the first could be read from the second.
TEST(Rewrite, OneThatIsReplacedMeanwhileIsNotReadInParts) {
  Random random(11);  // NOLINT
  const auto storage = memory_storage();
  const RewriteOptions inside{.overwrite = true, .from_storage = storage, .to_storage = storage};
  for (const char* path : {"now", "next"}) {
    State state;
    state["model.a"] = random_tensor(random, format::DType::f32, {1000});
    put(*storage, std::string(path) + ".pt", saved(state));
    rewrite_checkpoint({std::string(path) + ".pt"}, path, inside);
  }
  const auto replace = [&] { rewrite_checkpoint({"next"}, "now", inside); };
  for (const char* target : {"out", "out.pt"}) {
    const auto replaced = std::make_shared<AtSecondOpen>(storage, "now/sherd.manifest", replace);
    const std::string text =
        refusal([&] { rewrite_checkpoint({"now"}, target, {.from_storage = replaced, .to_storage = storage}); });
    EXPECT_EQ(text.substr(0, text.find("  at first")),
              "convert: the checkpoint was replaced while it was read\n  checkpoint: now\n");
    EXPECT_FALSE(storage->exists(target));
    EXPECT_THAT(storage->drafts(target), IsEmpty());
    rewrite_checkpoint({"now.pt"}, "now", inside);
  }
  // The same contents, saved again, are the same checkpoint.
  const auto again = [&] { rewrite_checkpoint({"now.pt"}, "now", inside); };
  rewrite_checkpoint(
      {"now"}, "out",
      {.from_storage = std::make_shared<AtSecondOpen>(storage, "now/sherd.manifest", again), .to_storage = storage});
  EXPECT_TRUE(storage->exists("out"));
}

TEST(Rewrite, WhatIsDamagedIsLeftOut) {
  Random random(9);  // NOLINT
  const auto storage = memory_storage();
  State state;
  for (int i = 0; i < 6; ++i)
    state["model.t" + std::to_string(i)] = random_tensor(random, format::DType::f32, {300, 1000});
  put(*storage, "0.pt", saved(state));
  rewrite_checkpoint({"0.pt"}, "good", {.from_storage = storage, .to_storage = storage});
  std::map<std::string, std::string> files;
  for (const std::string& name : storage->list("good")) files[name] = read_file(*storage, "good/" + name);
  files["__0_0.distcp"][3'000'000] ^= 4;
  put(*storage, "bad", files);
  const RewriteOptions options{.from_storage = storage, .to_storage = storage};
  EXPECT_THAT(refusal([&] { rewrite_checkpoint({"bad"}, "out", options); }), HasSubstr("convert: a file is damaged"));
  EXPECT_FALSE(storage->exists("out"));
  const RewriteResult result = rewrite_checkpoint(
      {"bad"}, "out", {.skip_damaged = true, .from_storage = storage, .to_storage = storage, .operation = "repair"});
  ASSERT_THAT(result.damaged, ::testing::SizeIs(::testing::AllOf(::testing::Ge(1U), ::testing::Le(2U))));
  for (const auto& left_out : result.damaged) {
    EXPECT_THAT(left_out.why, HasSubstr("__0_0.distcp"));
    state.erase(left_out.name);
  }
  expect_same(storage, "out", state);
}

TEST(Rewrite, WhatCannotBeDoneIsSaidBeforeAnythingIsWritten) {
  Random random(10);  // NOLINT
  const auto storage = memory_storage();
  State state;
  state["model.a"] = random_tensor(random, format::DType::c128, {2});
  put(*storage, "0.pt", saved(state));
  put(*storage, "there", "x");
  const auto text = [&](const std::string& to, RewriteOptions options) {
    options.from_storage = options.to_storage = storage;
    return refusal([&] { rewrite_checkpoint({"0.pt"}, to, options); });
  };
  EXPECT_EQ(text("there", {}),
            "convert: there is something at the target already\n  target: there\n"
            "  help: another target, or --force (RewriteOptions{.overwrite = true})");
  EXPECT_EQ(text("x", {.only = {"nothing*"}}),
            "convert: a pattern matches no entry\n  pattern: nothing*\n"
            "  help: `sherd inspect` shows the names; * stands for any text");
  EXPECT_EQ(text("x", {.drop = {"*"}}),
            "convert: nothing is left to write\n  source: 0.pt\n  entries there: 5\n"
            "  help: patterns that match some names; `sherd inspect` shows them");
  EXPECT_EQ(text("x", {.rename = {{"a", "b*"}}}),
            "convert: the new name has more stars than the old one\n  old name: a\n  new name: b*\n"
            "  help: as many stars on both sides: \"model.*=net.*\"");
  EXPECT_EQ(text("x.safetensors", {}),
            "convert: safetensors cannot hold tensors of this dtype\n  tensor: model.a\n  dtype: c128\n"
            "  help: another format (a folder, or .pt), or leave the tensor out");
  EXPECT_EQ(text("x.pt", {.layouts = sharded_over(2)}),
            "convert: this format has no parts for ranks\n  target: x.pt\n  format: torch.save\n"
            "  help: a folder as the target");
  EXPECT_THAT(storage->list("."), ElementsAre("0.pt", "there"));
}

}  // namespace
}  // namespace sherd::stored::test
