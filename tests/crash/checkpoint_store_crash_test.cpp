// Ranks that end at any request of a save to an object store, in any way to save, leave the checkpoint as it was or as
// it was to become.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "crash/ways_to_save.h"
#include "s3/ending_http.h"
#include "s3/store_in_memory.h"

namespace sherd::testing {
namespace {

class CheckpointStoreCrashTest : public ::testing::TestWithParam<std::tuple<WayToSave, int, bool>> {};

// Ends after every number of requests, of which the last one reaches the store or not.
TEST_P(CheckpointStoreCrashTest, OldOrNew) {
  const auto& [way, ranks, overwrites] = GetParam();
  const int before = overwrites ? way.before : 0;
  const auto start = std::make_shared<StoreInMemory>();
  for (int number = 1; number <= before; ++number) way.save(storage_in(start), ranks, number);
  ASSERT_EQ(way.found(storage_in(start)), before);
  for (const bool arrives : {false, true}) {
    int64_t stops = 0;
    for (bool ended = true; ended && !HasFailure(); ++stops) {
      SCOPED_TRACE(fmt::format("{} requests{}", stops, arrives ? " and one that nobody heard the answer of" : ""));
      const auto store = std::make_shared<StoreInMemory>(*start);
      const auto ending = std::make_shared<EndingHttp>(stops, arrives, store);
      bool finished = true;
      try {
        way.save(storage_in(ending), ranks, before + 1);
      } catch (...) {
        ASSERT_TRUE(ending->ended());  // whatever became of it on its way
        finished = false;
      }
      ended = ending->ended();
      double number = -1;
      EXPECT_NO_THROW(number = way.found(storage_in(store)));
      EXPECT_TRUE(number == before + 1 || (!finished && number == before)) << "there is " << number;
      // The next save works, whatever was left lying about, and clears it away.
      if (stops % 3 != 0) continue;
      way.save(storage_in(store), ranks, before + 2);
      EXPECT_EQ(way.found(storage_in(store)), before + 2);
      expect_no_leftovers(way, storage_in(store));
    }
    EXPECT_GT(stops, 20);  // so many requests there are at least
  }
}

std::string case_name(const ::testing::TestParamInfo<CheckpointStoreCrashTest::ParamType>& info) {
  const auto& [way, ranks, overwrites] = info.param;
  return way.name + (overwrites ? "Over" : "First") + "By" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointStoreCrashTest,
                         ::testing::Combine(::testing::ValuesIn(ways_to_save()), ::testing::Values(1, 2),
                                            ::testing::Bool()),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Runs, CheckpointStoreCrashTest,
                         ::testing::Combine(::testing::ValuesIn(ways_to_run()), ::testing::Values(1, 2),
                                            ::testing::Values(true)),
                         case_name);

}  // namespace
}  // namespace sherd::testing
