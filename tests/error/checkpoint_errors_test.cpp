// What a user reads when a checkpoint cannot be saved or loaded: whole texts, the same on every rank.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "crash/passing_storage.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "sherd/sherd.h"
#include "stored/read_file.h"
#include "stored/retention.h"
#include "unit/stored/stored_files.h"

namespace sherd::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CheckpointErrorsTest : public ::testing::Test {
 protected:
  CheckpointErrorsTest() : folder_(fs::path(::testing::TempDir()) / fmt::format("checkpoint-errors-{}", ::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CheckpointErrorsTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "ck") const { return (folder_ / name).string(); }

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

  fs::path folder_;
};

StateDict small_state() { return {{"w", torch::arange(6.).view({2, 3})}, {"step", 5}}; }

TEST_F(CheckpointErrorsTest, NothingThere) {
  StateDict state = small_state();
  EXPECT_EQ(text([&] { load(state, path()); }), R"(load: there is no checkpoint at this path
  path: DIR/ck
  looked for: .metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors
  found: nothing
  help: the path that was given to save)");
}

// What a save would replace is its own: a run's folder given instead of a checkpoint's must not cost the run.
TEST_F(CheckpointErrorsTest, AFolderWithOtherThingsIsNotReplaced) {
  for (const char* name : {"run/step-1", "run/step-2"}) save(small_state(), path(name));
  std::ofstream(path("run/log.txt")) << "loss 0.5";
  const std::string expected = R"(save: the folder holds what is no checkpoint, and would be replaced as a whole
  path: DIR/run
  in it: log.txt, step-1, step-2
  help: a folder of its own: DIR/run/checkpoint)";
  EXPECT_EQ(text([&] { save(small_state(), path("run")); }), expected);
  spawn(2, [&](World&) {
    EXPECT_THAT(text([&] { save(small_state(), path("run")); }), HasSubstr("the folder holds what is no checkpoint"));
  });
  EXPECT_EQ(text([&] { save_async(small_state(), path("run")).wait(); }), expected);
  EXPECT_TRUE(fs::exists(path("run/log.txt")));
  StateDict state = small_state();
  EXPECT_NO_THROW(load(state, path("run/step-2")));

  // A model's folder with more than its weights, and the other way round a file in a checkpoint.
  save(small_state(), path("model"), {.format = CheckpointFormat::safetensors});
  std::ofstream(path("model/tokenizer.json")) << "{}";
  EXPECT_THAT(text([&] { save(small_state(), path("model"), {.format = CheckpointFormat::safetensors}); }),
              HasSubstr("in it: tokenizer.json"));
  save(small_state(), path("ck"));
  EXPECT_NO_THROW(save(small_state(), path("ck")));

  std::ofstream(path("notes")) << "mine";
  EXPECT_EQ(text([&] { save(small_state(), path("notes")); }), R"(save: there is a file where the folder is to be
  path: DIR/notes
  help: another path, or remove the file first)");
  fs::create_directories(path("weights.pt/more"));
  EXPECT_EQ(text([&] { save(small_state(), path("weights.pt")); }), R"(save: there is a folder where the file is to be
  path: DIR/weights.pt
  help: another path, or one without an ending for a folder)");
  fs::create_directories(path("other.pt.parts"));
  std::ofstream(path("other.pt.parts/mine")) << "mine";
  EXPECT_THAT(text([&] { save(small_state(), path("other.pt")); }), HasSubstr("in it: mine"));
}

// Names beside a checkpoint that only look like what a save leaves behind.
TEST_F(CheckpointErrorsTest, ABackupBesideACheckpointStays) {
  save(small_state(), path());
  for (const char* name : {"ck.old-backup", "ck.tmp-mine"}) fs::copy(path(), path(name), fs::copy_options::recursive);
  save(small_state(), path());
  save(small_state(), path());
  for (const char* name : {"ck.old-backup", "ck.tmp-mine"}) EXPECT_TRUE(fs::exists(path(name) + "/.metadata")) << name;
}

TEST_F(CheckpointErrorsTest, KeysThatTheCheckpointLacks) {
  save(small_state(), path());
  StateDict state{{"w", torch::zeros({2, 3})}, {"b", torch::zeros({3})}, {"v", torch::zeros({3})}};
  EXPECT_EQ(text([&] { load(state, path()); }), R"(load: the checkpoint lacks 2 keys of the state
  checkpoint: DIR/ck
  missing: b, v
  not asked for: step
  help: LoadOptions{.strict = false} to leave these as they are)");
  EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 0);  // nothing was filled
  const LoadResult result = load(state, path(), {.strict = false});
  EXPECT_EQ(result.missing, (std::vector<std::string>{"b", "v"}));
  EXPECT_EQ(result.unexpected, std::vector<std::string>{"step"});
  EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 15);
}

TEST_F(CheckpointErrorsTest, EverythingThatDoesNotFitAtOnce) {
  save({{"a", torch::zeros({2, 3})}, {"b", 1}, {"c", torch::zeros({4})}}, path());
  spawn(2, [&](World&) {
    StateDict state{{"a", torch::zeros({3, 2})}, {"b", torch::zeros({1})}, {"c", "text"}};
    const std::string same = R"(load: the state does not fit the checkpoint in 3 keys
      checkpoint: DIR/ck
      a: load: size [2, 3] in the checkpoint, [3, 2] in the state
      b: load: an object in the checkpoint, a tensor in the state
      c: load: a tensor f32[4] in the checkpoint, text in the state
      help: tensors of the checkpoint's sizes; sherd::load_state_dict(path) shows what is there)";
    EXPECT_EQ(text([&] { load(state, path()); }), "load: 2 of 2 ranks failed\n  rank 0: " + same + "\n  rank 1: " +
                                                      same + "\n  help: mend what these ranks say; no rank went on");
  });
}

// Elements that share a place would all have the value that came last.
TEST_F(CheckpointErrorsTest, ATensorWhoseElementsShareMemory) {
  save({{"w", torch::arange(6.).view({2, 3})}}, path());
  const auto memory = torch::full({2, 1}, 7.);
  StateDict state{{"w", memory.expand({2, 3})}};
  EXPECT_EQ(text([&] { load(state, path()); }),
            "load: the state does not fit the checkpoint in 1 key\n"
            "  checkpoint: DIR/ck\n"
            "  w: load: elements of the state's tensor lie in one place of memory: sizes [2, 3], strides [1, 0]\n"
            "  help: tensors of the checkpoint's sizes; sherd::load_state_dict(path) shows what is there");
  EXPECT_TRUE(memory.eq(7).all().item<bool>());
  // Saved, it is what it looks like.
  save(state, path());
  EXPECT_TRUE(load_state_dict(path()).at("w").tensor()->equal(torch::full({2, 3}, 7.)));
  // Strides of which none is 0, and the ways in which elements of a whole tensor may lie.
  const auto row = torch::full({8}, 7.);
  StateDict diagonals{{"w", row.as_strided({2, 3}, {1, 1})}};
  EXPECT_THAT(text([&] { load(diagonals, path()); }),
              HasSubstr("in one place of memory: sizes [2, 3], strides [1, 1]"));
  const std::vector<at::Tensor> whole{torch::zeros({3, 2}).t(), torch::zeros({2, 4, 3}).select(1, 2),
                                      torch::zeros({4, 9}).as_strided({2, 3}, {18, 4})};
  for (const at::Tensor& own : whole) {
    StateDict free{{"w", own}};
    EXPECT_EQ(text([&] { load(free, path()); }), "no error");
    EXPECT_TRUE(own.eq(7).all().item<bool>());
  }
}

// The tensors would keep what they have, and numbers take their place in the state.
TEST_F(CheckpointErrorsTest, AnObjectThatHoldsNumbersWhereTheStateHasTensors) {
  save({{"a", StateList{1.0, 2.0}}}, path());
  StateDict state{{"a", StateList{torch::zeros({}), torch::zeros({})}}};
  EXPECT_EQ(text([&] { load(state, path()); }), R"(load: the checkpoint lacks 2 keys of the state
  checkpoint: DIR/ck
  missing: a.0, a.1
  not asked for: a
  help: LoadOptions{.strict = false} to leave these as they are)");
  EXPECT_EQ(load(state, path(), {.strict = false}).missing, (std::vector<std::string>{"a.0", "a.1"}));
  for (const StateValue& item : *state.at("a").list()) {
    ASSERT_NE(item.tensor(), nullptr);
    EXPECT_EQ(item.tensor()->item<double>(), 0);
  }
}

TEST_F(CheckpointErrorsTest, ComplexNumbersIntoATensorOfRealOnes) {
  save({{"w", torch::ones({3}, torch::kComplexFloat)}}, path());
  StateDict state{{"w", torch::full({3}, 7.)}};
  EXPECT_EQ(text([&] { load(state, path()); }), R"(load: the state does not fit the checkpoint in 1 key
  checkpoint: DIR/ck
  w: load: c64 in the checkpoint, f32 in the state, which has no room for imaginary parts
  help: tensors of the checkpoint's sizes; sherd::load_state_dict(path) shows what is there)");
  EXPECT_TRUE(state.at("w").tensor()->eq(7).all().item<bool>());
  StateDict wider{{"w", torch::zeros({3}, torch::kComplexDouble)}};
  load(wider, path());
  EXPECT_TRUE(wider.at("w").tensor()->eq(1).all().item<bool>());
}

TEST_F(CheckpointErrorsTest, AFileThatIsGoneOrCut) {
  save({{"w", torch::ones({100})}}, path());
  const fs::path file = fs::path(path()) / "__0_0.distcp";
  const auto size = fs::file_size(file);
  StateDict state{{"w", torch::zeros({100})}};
  fs::resize_file(file, size - 1);
  EXPECT_EQ(text([&] { load(state, path()); }),
            fmt::format(R"(load: a file of the checkpoint has another length than was saved
  file: DIR/ck/__0_0.distcp
  bytes saved: {}
  bytes there: {}
  help: another checkpoint: this one is damaged)",
                        size, size - 1));
  fs::remove(file);
  EXPECT_EQ(text([&] { load(state, path()); }), R"(load: a file of the checkpoint is missing
  file: DIR/ck/__0_0.distcp
  help: another checkpoint, or bring the file back)");
  EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 0);
}

TEST_F(CheckpointErrorsTest, ABitThatFlipped) {
  save({{"w", torch::ones({100})}}, path());
  const fs::path file = fs::path(path()) / "__0_0.distcp";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(900);
  stream.put('!');
  stream.close();
  StateDict state{{"w", torch::zeros({100})}};
  const std::string what = text([&] { load(state, path()); });
  EXPECT_EQ(what.substr(0, what.find("  digest saved")),
            fmt::format(R"(load: a file is damaged: its bytes are not those that were saved
  file: DIR/ck/__0_0.distcp
  bytes: 0 to {}
)",
                        fs::file_size(file)));
  EXPECT_NE(what.find("  reading: tensor w\n"), std::string::npos) << what;
  load(state, path(), {.verify = false});
}

// It is not needed to find what is stored, unless that is on a base.
TEST_F(CheckpointErrorsTest, ADamagedManifest) {
  const auto damage = [&](const std::string& name) {
    const fs::path file = fs::path(path(name)) / "sherd.manifest";
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(20);
    stream.put('!');
    return fs::file_size(file);
  };
  // The digests follow.
  const auto what = [&](const std::function<void()>& call) {
    std::string found = text(call);
    const size_t digest = found.find("      digest: ");
    if (digest != std::string::npos) found.erase(digest, found.find("  help", digest) - digest);
    return found;
  };
  const auto expected = [&](const std::string& name, uintmax_t size) {
    return fmt::format(R"(load: the manifest of the checkpoint is damaged
  file: DIR/{0}/sherd.manifest
  bytes: 0 to {1}
  because: decode_manifest: the bytes are not those that were written
      in: DIR/{0}/sherd.manifest
  help: another checkpoint, or LoadOptions{{.verify = false}} to take the bytes as they are)",
                       name, size);
  };
  for (const auto format : {CheckpointFormat::dcp, CheckpointFormat::safetensors}) {
    save(small_state(), path(), {.format = format});
    const auto size = damage("ck");
    StateDict state{{"w", torch::zeros({2, 3})}, {"step", 0}};
    EXPECT_EQ(what([&] { load(state, path()); }), expected("ck", size));
    load(state, path(), {.verify = false});
    EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 15);
    EXPECT_EQ(*state.at("step").integer(), 5);
    fs::remove_all(path());
  }
  save(small_state(), path("one"));
  save(small_state(), path("two"), {.base = path("one")});
  const auto size = damage("two");
  StateDict state = small_state();
  EXPECT_EQ(what([&] { load(state, path("two")); }), expected("two", size));
  EXPECT_EQ(text([&] { load(state, path("two"), {.verify = false}); }),
            R"(load: the manifest of the checkpoint is damaged, and says where on its base the bytes are
  file: DIR/two/sherd.manifest
  wanted: DIR/two/__0_0.distcp
  help: another checkpoint: this one cannot be read without its manifest)");
}

// Without it a checkpoint must not look like one that never had digests.
TEST_F(CheckpointErrorsTest, AManifestThatIsGone) {
  const auto remove = [&](const std::string& name) { fs::remove(fs::path(path(name)) / "sherd.manifest"); };
  const auto expected = [&](const std::string& name, const std::string& told_by) {
    return fmt::format(R"(load: a file of the checkpoint is missing
  file: DIR/{0}/sherd.manifest
  because: {1} says that digests were saved
  help: another checkpoint, or LoadOptions{{.verify = false}} to take the bytes as they are)",
                       name, told_by);
  };
  for (const auto format : {CheckpointFormat::dcp, CheckpointFormat::safetensors}) {
    save(small_state(), path(), {.format = format});
    remove("ck");
    StateDict state{{"w", torch::zeros({2, 3})}, {"step", 0}};
    EXPECT_EQ(
        text([&] { load(state, path()); }),
        expected("ck", format == CheckpointFormat::dcp ? ".metadata" : "shard-00001-model-00001-of-00001.safetensors"));
    EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 0);
    const VerifyResult found = verify_checkpoint(path());
    ASSERT_EQ(found.damage.size(), 1U);
    EXPECT_EQ(found.damage[0].file, "sherd.manifest");
    EXPECT_EQ(found.damage[0].problem, "the file is missing");
    load(state, path(), {.verify = false});
    EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 15);
    // What `sherd repair` does.
    const RewriteResult repaired = rewrite_checkpoint({path()}, path("repaired"), {.skip_damaged = true});
    EXPECT_TRUE(repaired.tensors == 1 && repaired.objects == 1 && repaired.damaged.empty());
    load(state, path("repaired"));
    fs::remove_all(path());
    fs::remove_all(path("repaired"));
  }
  save(small_state(), path("one"));
  save(small_state(), path("two"), {.base = path("one")});
  remove("two");
  StateDict state = small_state();
  EXPECT_EQ(text([&] { load(state, path("two")); }), expected("two", ".metadata"));
  EXPECT_EQ(text([&] { load(state, path("two"), {.verify = false}); }),
            R"(load: the manifest of the checkpoint is missing, and says where on its base the bytes are
  file: DIR/two/sherd.manifest
  wanted: DIR/two/__0_0.distcp
  help: another checkpoint: this one cannot be read without its manifest)");
  // That of another save is none.
  save(small_state(), path("three"));
  fs::copy_file(path("three") + "/sherd.manifest", path("two") + "/sherd.manifest");
  EXPECT_THAT(text([&] { load(state, path("two")); }),
              HasSubstr("  file: DIR/two/sherd.manifest\n  there: that of another save\n"));
}

// Nobody knows what it stands on, so that nothing is removed that it may use.
TEST_F(CheckpointErrorsTest, TheManagerSkipsOneWhoseManifestIsGone) {
  CheckpointManager checkpoints(path("run"), {.keep_last = 2});
  for (const int64_t step : {1, 2}) checkpoints.save(step, {{"w", torch::full({10}, step)}});
  fs::remove(path("run") + "/step-2/sherd.manifest");
  StateDict state{{"w", torch::zeros({10}, torch::kLong)}};
  EXPECT_EQ(checkpoints.load_latest(state), 1);
  EXPECT_EQ(state.at("w").tensor()->sum().item<int64_t>(), 10);
  ASSERT_EQ(checkpoints.warnings().size(), 1U);
  EXPECT_THAT(checkpoints.warnings()[0], HasSubstr("step-2/sherd.manifest"));
  // Does not count for keep_last, and 1 stays.
  checkpoints.save(3, {{"w", torch::full({10}, 3)}});
  EXPECT_EQ(checkpoints.steps(), (std::vector<int64_t>{1, 2, 3}));
}

// Memory that says of itself what an object store says: the manifest's name has the id of the save.
class ObjectsInMemory final : public PassingStorage {
 public:
  ObjectsInMemory() : PassingStorage(memory_storage()) {}
  bool replaces_whole_folders() const override { return false; }
};

std::map<std::string, std::string> files_in(const Storage& storage, const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const std::string& name : storage.list(folder)) {
    files[name] = stored::read_file(storage, storage.join(folder, name));
  }
  return files;
}

TEST_F(CheckpointErrorsTest, EveryBitOfTheMetadataInAnObjectStore) {
  const auto storage = std::make_shared<ObjectsInMemory>();
  save(small_state(), "one", {.storage = storage});
  save(small_state(), "two", {.storage = storage, .base = "one"});
  const auto one = files_in(*storage, "one");
  const auto two = files_in(*storage, "two");
  ASSERT_FALSE(one.contains("sherd.manifest"));
  const auto flipped = [](std::map<std::string, std::string> files, size_t bit) {
    files.at(".metadata")[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    return files;
  };
  for (size_t bit = 0; bit < one.at(".metadata").size() * 8; ++bit) {
    stored::test::put(*storage, "one", flipped(one, bit));
    StateDict state{{"w", torch::zeros({2, 3})}, {"step", 0}};
    const std::string found = text([&] { load(state, "one", {.storage = storage}); });
    if (found == "no error") {
      EXPECT_TRUE(state.at("w").tensor()->equal(*small_state().at("w").tensor())) << bit;
      EXPECT_EQ(*state.at("step").integer(), 5) << bit;
    } else {
      EXPECT_THAT(found, AnyOf(HasSubstr("one/.metadata"), HasSubstr("one/sherd.manifest-"))) << bit;
    }
  }
  stored::test::put(*storage, "one", one);
  // What it stands on is known, or it is not known; never is it nothing.
  for (size_t bit = 0; bit < two.at(".metadata").size() * 8; ++bit) {
    stored::test::put(*storage, "two", flipped(two, bit));
    const auto bases = stored::bases_of(*storage, "two");
    EXPECT_TRUE(!bases || *bases == std::vector<std::string>{"one"}) << bit;
  }
  auto without = two;
  std::erase_if(without, [](const auto& file) { return file.first.starts_with("sherd.manifest"); });
  stored::test::put(*storage, "two", without);
  EXPECT_EQ(stored::bases_of(*storage, "two"), std::nullopt);
  // Copied to where folders are replaced whole, it is found by its name as before.
  const auto elsewhere = memory_storage();
  stored::test::put(*elsewhere, "one", one);
  stored::test::put(*elsewhere, "two", two);
  StateDict state{{"w", torch::zeros({2, 3})}, {"step", 0}};
  load(state, "two", {.storage = elsewhere});
  EXPECT_EQ(state.at("w").tensor()->sum().item<double>(), 15);
  EXPECT_EQ(stored::bases_of(*elsewhere, "two"), std::vector<std::string>{"one"});
}

// One rank reads what both want; the other one finds the damage, too.
TEST_F(CheckpointErrorsTest, ABitThatFlippedInWhatTwoRanksWant) {
  constexpr int64_t kSide = 4096;
  constexpr int64_t kWhere = int64_t{40} << 20;
  std::vector<std::string> texts(2);
  spawn(2, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto rank = static_cast<size_t>(world.rank());
    save({{"w", ones({kSide, kSide}, mesh, {Replicate()})}}, path());
    if (rank == 0) {
      const fs::path first = fs::path(path()) / "__0_0.distcp";
      const fs::path file = fs::exists(first) ? first : fs::path(path()) / "__1_0.distcp";
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(kWhere);
      stream.put('!');
    }
    barrier(world.group());
    StateDict state{{"w", ones({kSide, kSide}, mesh, {Replicate()})}};
    texts[rank] = text([&] { load(state, path()); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0].substr(0, texts[0].find('\n')), "load: 2 of 2 ranks could not read the checkpoint");
  EXPECT_NE(texts[0].find(fmt::format("bytes: {} to {}", kWhere, kWhere + (1 << 20))), std::string::npos) << texts[0];
}

TEST_F(CheckpointErrorsTest, WhatCannotBeSaved) {
  spawn(2, [&](World& world) {
    const auto mesh = init_device_mesh("cpu", {2});
    const auto partial = from_local(torch::ones({2}), mesh, {Partial()});
    const std::string what = text([&] { save({{"loss", partial}}, path()); });
    EXPECT_NE(what.find("key: loss"), std::string::npos) << what;
    EXPECT_NE(what.find("a Partial tensor has no value yet that could be kept"), std::string::npos) << what;
    EXPECT_FALSE(fs::exists(path()));
    EXPECT_TRUE(fs::is_empty(folder_));
    barrier(world.group());
    // Nor can it be filled: every rank's part would count.
    save({{"loss", torch::full({2}, 5.)}}, path());
    StateDict state{{"loss", partial}};
    EXPECT_THAT(text([&] { load(state, path()); }),
                HasSubstr("loss: checkpointable: a Partial tensor has no value yet"));
    EXPECT_TRUE(to_local(partial).eq(1).all().item<bool>());
  });
}

// Nobody could read it back: readers bound how deep they go.
TEST_F(CheckpointErrorsTest, AStateThatIsTooDeep) {
  const auto deep = [](int dicts) {
    StateValue value = torch::ones({1});
    for (int i = 1; i < dicts; ++i) value = StateDict{{"a", value}};
    return StateDict{{"a", value}};
  };
  for (const char* name : {"ck", "ck.safetensors", "ck.pt"}) {
    spawn(2, [&](World&) {
      const std::string what = text([&] { save(deep(1001), path(name)); });
      EXPECT_THAT(what, HasSubstr("save: a value of the state lies too deep"));
      EXPECT_THAT(what, HasSubstr("containers around it: 1001"));
    });
    EXPECT_FALSE(fs::exists(path(name)));
  }
  StateDict state = deep(1000);
  save(state, path());
  EXPECT_NO_THROW(load(state, path()));
}

TEST_F(CheckpointErrorsTest, TensorsThatHaveNoMemory) {
  const auto meta = torch::zeros({2, 3}, torch::kMeta);
  EXPECT_EQ(text([&] {
              save({{"a", StateDict{{"w", meta}}}}, path());
            }),
            R"(save: a value of the state cannot be saved
  key: a.w
  because: save: the tensor is on the meta device and has no data
      help: sherd::load(state, path) gives it memory and fills it
  help: leave the key out, or save something else under it)");
  spawn(2, [&](World& world) {
    // Inside of an object and on one rank alone, too.
    const StateValue one = world.rank() == 1 ? StateValue(meta) : StateValue(torch::zeros({2, 3}));
    for (const StateValue& value : {StateValue(meta), StateValue(StateTuple{{1, meta}}), one}) {
      const StateDict state{{"a", StateDict{{"w", value}}}};
      const auto refused = AllOf(HasSubstr("key: a.w"), HasSubstr("the tensor is on the meta device and has no data"));
      EXPECT_THAT(text([&] { save(state, path()); }), refused);
      EXPECT_THAT(text([&] { save_async(state, path()).wait(); }), refused);
    }
    // Zeros that torch keeps without memory are zeros, and cannot be filled.
    const auto zeros = torch::_efficientzerotensor({3});
    save({{"x", zeros}, {"in", StateTuple{{zeros, 1}}}}, path());
    const StateDict loaded = load_state_dict(path());
    EXPECT_TRUE(loaded.at("x").tensor()->equal(torch::zeros({3})));
    EXPECT_TRUE(loaded.at("in").tuple()->items[0].tensor()->equal(torch::zeros({3})));
    StateDict state{{"x", zeros}};
    EXPECT_THAT(text([&] { load(state, path()); }),
                HasSubstr("x: checkpointable: the tensor has no memory of its own"));
  });
}

TEST_F(CheckpointErrorsTest, AFolderOfPartsThatNoSaveMade) {
  const std::string parts = path("gpt.pt.parts");
  fs::create_directories(parts);
  std::ofstream(parts + "/model.safetensors") << "a user's";
  const std::string expected = R"(save: the folder that ranks write their parts to holds something else
  folder: DIR/gpt.pt.parts
  in it: model.safetensors
  help: move DIR/gpt.pt.parts elsewhere, or save to another path than DIR/gpt.pt)";
  EXPECT_EQ(text([&] { save(small_state(), path("gpt.pt")); }), expected);
  spawn(2, [&](World&) { EXPECT_THAT(text([&] { save(small_state(), path("gpt.pt")); }), HasSubstr("gpt.pt.parts")); });
  EXPECT_TRUE(fs::exists(parts + "/model.safetensors"));
  EXPECT_FALSE(fs::exists(path("gpt.pt")));
}

TEST_F(CheckpointErrorsTest, RanksThatDisagree) {
  spawn(2, [&](World& world) {
    const StateDict state{{"w", torch::zeros({2 + world.rank()})}};
    EXPECT_EQ(text([&] { save(state, path()); }), R"(save: ranks have different things under one key
  key: w
  rank 0: f32[2]
  rank 1: f32[3]
  help: give them keys of their own, or save the same on every rank)");
    barrier(world.group());
    EXPECT_TRUE(fs::is_empty(folder_));
  });
}

// One name, and two places in the state.
TEST_F(CheckpointErrorsTest, RanksThatDisagreeWhereAKeyStands) {
  spawn(2, [&](World& world) {
    const auto x = torch::zeros({2});
    const StateDict state = world.rank() == 0 ? StateDict{{"a.b", x}} : StateDict{{"a", StateDict{{"b", x}}}};
    EXPECT_EQ(text([&] { save(state, path()); }), R"(save: ranks have different things under one key
  key: a.b
  rank 0: ["a.b"]
  rank 1: ["a"]["b"]
  help: give them keys of their own, or save the same on every rank)");
  });
}

TEST_F(CheckpointErrorsTest, NotOverWhatIsThere) {
  save(small_state(), path());
  EXPECT_EQ(text([&] { save(small_state(), path(), {.overwrite = false}); }), R"(save: there is a checkpoint already
  path: DIR/ck
  help: another path, or SaveOptions{.overwrite = true})");
  EXPECT_EQ(text([&] { save(small_state(), path("two"), {.base = path("none")}); }),
            R"(save: the base is no checkpoint with a manifest
  base: DIR/none
  missing: DIR/none/sherd.manifest
  help: the folder of a checkpoint that sherd saved, or no base)");
  EXPECT_FALSE(fs::exists(path("two")));
}

TEST_F(CheckpointErrorsTest, ABaseThatWouldBeOverwritten) {
  save(small_state(), path("one"));
  save(small_state(), path("two"), {.base = path("one")});
  for (const char* base : {"one", "two"}) {
    EXPECT_EQ(text([&] { save(small_state(), path("one"), {.base = path(base)}); }),
              fmt::format(R"(save: a checkpoint cannot stand on itself
  path: DIR/one
  base: DIR/{}
  help: another path, or no base)",
                          base));
  }
  StateDict state = small_state();
  load(state, path("two"));
}

TEST_F(CheckpointErrorsTest, ABaseThatIsGone) {
  const auto large = torch::arange(1 << 20);
  save({{"w", large}}, path("one"));
  save({{"w", large}}, path("two"), {.base = path("one")});
  fs::remove_all(path("one"));
  StateDict state{{"w", torch::zeros({1 << 20}, torch::kLong)}};
  EXPECT_EQ(text([&] { load(state, path("two")); }),
            R"(load: a file of the checkpoint that this one builds on is missing
  checkpoint: DIR/two
  base: DIR/one
  file: DIR/one/__0_0.distcp
  help: bring the base back; checkpoints saved without a base need no other)");
}

TEST_F(CheckpointErrorsTest, TheManagerGoesOnFromTheNewestThatIsWhole) {
  spawn(2, [&](World& world) {
    CheckpointManager checkpoints(path("run"), {.keep_last = 3, .keep_every = 100});
    const auto mesh = init_device_mesh("cpu", {2});
    const auto w = distribute_tensor(torch::zeros({10}), mesh, {Shard(0)});
    for (const int64_t step : {100, 110, 120, 130, 140}) {
      w.fill_(static_cast<double>(step));
      checkpoints.save_async(step, {{"w", w}, {"step", step}});
    }
    checkpoints.wait();
    EXPECT_EQ(checkpoints.steps(), (std::vector<int64_t>{100, 120, 130, 140}));
    barrier(world.group());
    if (world.rank() == 0) {
      fs::remove(fs::path(checkpoints.path_of(140)) / "__1_0.distcp");
      fs::resize_file(fs::path(checkpoints.path_of(130)) / ".metadata", 20);
    }
    barrier(world.group());
    StateDict state{{"w", w}, {"step", 0}};
    EXPECT_EQ(checkpoints.load_latest(state), std::optional<int64_t>(120));
    EXPECT_EQ(*state.at("step").integer(), 120);
    EXPECT_EQ(full_tensor(w).sum().item<double>(), 1200);
    ASSERT_EQ(checkpoints.warnings().size(), 2U);
    EXPECT_NE(checkpoints.warnings()[0].find("step-140 is skipped: load: "), std::string::npos);
    EXPECT_NE(checkpoints.warnings()[0].find("__1_0.distcp"), std::string::npos);
    EXPECT_NE(checkpoints.warnings()[1].find(".metadata"), std::string::npos);
    StateDict misfit{{"w", torch::zeros({11})}};
    EXPECT_THROW(checkpoints.load_latest(misfit), c10::ValueError);
    EXPECT_EQ(CheckpointManager(path("none")).load_latest(state), std::nullopt);
  });
}

TEST_F(CheckpointErrorsTest, TrainingGoesOnOnAnotherMesh) {
  const auto train = [](torch::nn::Linear& model, torch::optim::Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      model->forward(torch::linspace(-1, 1, 12).view({3, 4})).square().sum().backward();
      optimizer.step();
    }
  };
  const auto make = [](const World& world, const Placement& placement) {
    torch::nn::Linear model(4, 6);
    const torch::NoGradGuard no_grad;
    model->weight.copy_(torch::linspace(0, 1, 24).view({6, 4}));
    model->bias.zero_();
    const auto mesh = init_device_mesh("cpu", {world.size()});
    distribute_parameter_(model->weight, mesh, {placement});
    return model;
  };
  at::Tensor expected;
  spawn(1, [&](World& world) {
    auto model = make(world, Replicate());
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
    train(model, optimizer, 5);
    expected = full_tensor(model->weight).detach();
  });
  spawn(2, [&](World& world) {
    auto model = make(world, Shard(0));
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
    CheckpointManager checkpoints(path("run"));
    EXPECT_EQ(checkpoints.resume(model, optimizer), std::nullopt);
    train(model, optimizer, 3);
    checkpoints.save_async(3, model, optimizer);
  });
  spawn(3, [&](World& world) {
    auto model = make(world, Shard(1));
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.5));
    CheckpointManager checkpoints(path("run"));
    EXPECT_EQ(checkpoints.resume(model, optimizer), std::optional<int64_t>(3));
    train(model, optimizer, 2);
    EXPECT_TRUE(full_tensor(model->weight).allclose(expected, 1e-5, 1e-6));
  });
}

TEST_F(CheckpointErrorsTest, TheManagerKeepsWhatOthersBuildOn) {
  CheckpointManager checkpoints(path("run"), {.keep_last = 1, .incremental = true});
  const auto w = torch::arange(1 << 20);
  for (const int64_t step : {1, 2, 3}) checkpoints.save(step, {{"w", w}, {"step", step}});
  EXPECT_EQ(checkpoints.steps().front(), 1);  // holds the bytes
  EXPECT_EQ(checkpoints.steps().back(), 3);
  StateDict state{{"w", torch::zeros_like(w)}, {"step", 0}};
  EXPECT_EQ(checkpoints.load_latest(state), std::optional<int64_t>(3));
  EXPECT_TRUE(state.at("w").tensor()->equal(w));
}

}  // namespace
}  // namespace sherd::testing
