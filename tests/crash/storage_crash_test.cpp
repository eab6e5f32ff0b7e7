// A machine that stops at any operation of disk storage leaves the folder as it was or as it was to become.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/storage.h"
#include "crash/simulated_disk.h"
#include "storage/disk.h"

namespace sherd::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kFolder = "/runs/a";

std::shared_ptr<Storage> storage_on(const std::shared_ptr<SimulatedDisk>& disk) {
  return disk_storage(Disk{.posix = disk, .options = {.io_uring = false}});
}

// Two ranks write into one draft; the files of every checkpoint have the same names.
void save_checkpoint(const std::shared_ptr<SimulatedDisk>& disk, const std::string& text) {
  const auto storage = storage_on(disk);
  const auto other_storage = storage_on(disk);
  const auto draft = storage->draft(kFolder, text);
  const auto other_draft = other_storage->draft(kFolder, text);
  write_all(*draft, "rank_0", text + " 0");
  write_all(*other_draft, "sharded/rank_1", text + " 1");
  const auto holes = draft->create("holes", 30);
  holes->write(20, bytes_of(text));
  holes->finish();
  write_all(*draft, "last", text);
  draft->commit("last");
}

// The text of the checkpoint in the folder; "" where there is none. Anything else than a whole one fails the test.
std::string checkpoint_in(const Storage& storage) {
  if (!storage.exists(kFolder)) {
    EXPECT_THAT(storage.list(kFolder), IsEmpty());
    return "";
  }
  EXPECT_THAT(storage.list("/runs"), ElementsAre("a"));
  EXPECT_THAT(storage.list(kFolder), ElementsAre("holes", "last", "rank_0", "sharded"));
  EXPECT_THAT(storage.list(kFolder + "/sharded"), ElementsAre("rank_1"));
  const std::string text = read_all(storage, kFolder + "/last");
  std::string holes(30, '\0');
  holes.replace(20, text.size(), text);
  EXPECT_EQ(read_all(storage, kFolder + "/rank_0"), text + " 0");
  EXPECT_EQ(read_all(storage, kFolder + "/sharded/rank_1"), text + " 1");
  EXPECT_EQ(read_all(storage, kFolder + "/holes"), holes);
  return text;
}

// What the next process does: it clears drafts away and saves.
void expect_that_it_can_go_on(const std::shared_ptr<SimulatedDisk>& disk) {
  const auto storage = storage_on(disk);
  const std::string before = checkpoint_in(*storage);
  for (const DraftName& name : storage->drafts_in("/runs")) storage->draft(name.folder, name.id)->discard();
  EXPECT_THAT(storage->drafts_in("/runs"), IsEmpty());
  EXPECT_EQ(checkpoint_in(*storage), before);
  save_checkpoint(disk, "next");
  EXPECT_EQ(checkpoint_in(*storage), "next");
  std::vector<FolderEntry> entries;
  disk->list("/runs", entries);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "a");
}

struct CrashCase {
  bool can_exchange = true;
  Survivors survivors = {};
};

class StorageCrashTest : public ::testing::TestWithParam<CrashCase> {
 protected:
  // Does the work with a stop after every number of operations, and looks at what is left. Returns how many stops.
  template <class Work, class Check>
  static int64_t stop_everywhere(const std::shared_ptr<SimulatedDisk>& start, const Work& work, const Check& check) {
    for (int64_t stop = 0;; ++stop) {
      SCOPED_TRACE(stop);
      const auto disk = start->after_restart({Survivors::all});
      disk->stop_after(stop);
      bool finished = false;
      try {
        work(disk);
        finished = true;
      } catch (const PowerLoss&) {  // NOLINT(bugprone-empty-catch): that is the case to look at
      }
      Survivors survivors = GetParam().survivors;
      survivors.seed += static_cast<unsigned>(stop);
      check(disk->after_restart(survivors), finished);
      if (finished || ::testing::Test::HasFailure()) return stop;
    }
  }
};

TEST_P(StorageCrashTest, AFirstCheckpointIsThereInFullOrNotAtAll) {
  const auto start = std::make_shared<SimulatedDisk>(GetParam().can_exchange);
  const int64_t stops = stop_everywhere(
      start, [](const auto& disk) { save_checkpoint(disk, "new"); },
      [](const auto& disk, bool finished) {
        const std::string found = checkpoint_in(*storage_on(disk));
        EXPECT_TRUE(!finished || found == "new") << found;
        EXPECT_THAT(found, AnyOf("", "new"));
        expect_that_it_can_go_on(disk);
      });
  EXPECT_GT(stops, 30);
}

TEST_P(StorageCrashTest, OverAnotherItIsTheOldOneOrTheNewOne) {
  const auto start = std::make_shared<SimulatedDisk>(GetParam().can_exchange);
  save_checkpoint(start, "old");
  int64_t saw_old = 0;
  int64_t saw_new = 0;
  const int64_t stops = stop_everywhere(
      start, [](const auto& disk) { save_checkpoint(disk, "new"); },
      [&](const auto& disk, bool finished) {
        const std::string found = checkpoint_in(*storage_on(disk));
        EXPECT_TRUE(!finished || found == "new") << found;
        EXPECT_THAT(found, AnyOf("old", "new"));
        ++(found == "old" ? saw_old : saw_new);
        expect_that_it_can_go_on(disk);
      });
  EXPECT_GT(stops, 30);
  EXPECT_GT(saw_old, 10);
  EXPECT_GT(saw_new, 5);
}

TEST_P(StorageCrashTest, TwoStopsInARowLeaveOneOfThree) {
  const auto start = std::make_shared<SimulatedDisk>(GetParam().can_exchange);
  save_checkpoint(start, "old");
  stop_everywhere(
      start, [](const auto& disk) { save_checkpoint(disk, "new"); },
      [](const auto& disk, bool) {
        const std::string before = checkpoint_in(*storage_on(disk));
        stop_everywhere(
            disk, [](const auto& again) { save_checkpoint(again, "newer"); },
            [&](const auto& again, bool finished) {
              const std::string found = checkpoint_in(*storage_on(again));
              EXPECT_TRUE(!finished || found == "newer") << found;
              EXPECT_THAT(found, AnyOf(before, "newer"));
              expect_that_it_can_go_on(again);
            });
      });
}

TEST_P(StorageCrashTest, ACheckpointIsRemovedInFullOrNotAtAll) {
  const auto start = std::make_shared<SimulatedDisk>(GetParam().can_exchange);
  save_checkpoint(start, "old");
  // Also where a save was stopped before it.
  stop_everywhere(
      start, [](const auto& disk) { save_checkpoint(disk, "new"); },
      [](const auto& disk, bool) {
        const std::string before = checkpoint_in(*storage_on(disk));
        stop_everywhere(
            disk, [](const auto& again) { storage_on(again)->remove(kFolder); },
            [&](const auto& again, bool finished) {
              const std::string found = checkpoint_in(*storage_on(again));
              EXPECT_TRUE(!finished || found == "") << found;
              EXPECT_THAT(found, AnyOf("", before));
              expect_that_it_can_go_on(again);
            });
      });
}

std::vector<CrashCase> crash_cases() {
  std::vector<CrashCase> cases;
  for (const bool can_exchange : {true, false}) {
    cases.push_back({can_exchange, {Survivors::none}});
    cases.push_back({can_exchange, {Survivors::all}});
    for (unsigned seed = 0; seed < 10; ++seed) cases.push_back({can_exchange, {Survivors::some, seed * 1000}});
  }
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<CrashCase>& info) {
  const auto& [can_exchange, survivors] = info.param;
  const char* kinds[] = {"NoneSurvives", "AllSurvives", "SomeSurvives"};
  return std::string(can_exchange ? "ByExchange" : "ByTwoRenames") + kinds[survivors.kind] +
         std::to_string(survivors.seed / 1000);
}

INSTANTIATE_TEST_SUITE_P(Disk, StorageCrashTest, ::testing::ValuesIn(crash_cases()), case_name);

}  // namespace
}  // namespace sherd::testing
