// A schedule by itself: every microbatch goes forward and backward once, nothing waits for ever, and 1F1B keeps few
// activations.

#include <gtest/gtest.h>

#include <set>

#include "sherd/pipeline.h"

namespace sherd {
namespace {

using Kind = PipelineAction::Kind;

struct Place {
  std::vector<PipelineAction> actions;
  size_t next = 0;
  std::set<int64_t> forward, backward;
  size_t most_alive = 0;
};

// Lets every stage go on as far as what it needs is there, until none can.
std::vector<Place> run(Schedule schedule, int64_t stages, int64_t microbatches) {
  std::vector<Place> places(static_cast<size_t>(stages));
  for (int64_t i = 0; i < stages; ++i) {
    places[static_cast<size_t>(i)].actions = schedule_actions(schedule, stages, i, microbatches);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < places.size(); ++i) {
      Place& place = places[i];
      if (place.next == place.actions.size()) continue;
      const auto [kind, m] = place.actions[place.next];
      if (kind == Kind::forward) {
        if (i > 0 && !places[i - 1].forward.count(m)) continue;
        EXPECT_TRUE(place.forward.insert(m).second);
      } else {
        if (i + 1 < places.size() && !places[i + 1].backward.count(m)) continue;
        EXPECT_TRUE(place.forward.count(m)) << "backward before forward";
        EXPECT_TRUE(place.backward.insert(m).second);
      }
      place.most_alive = std::max(place.most_alive, place.forward.size() - place.backward.size());
      ++place.next;
      moved = true;
    }
  }
  return places;
}

TEST(PipelineScheduleTest, EveryMicrobatchGoesBothWaysOnce) {
  for (const Schedule schedule : {Schedule::GPipe, Schedule::OneFOneB}) {
    for (int64_t stages = 1; stages <= 5; ++stages) {
      for (int64_t microbatches = 1; microbatches <= 9; ++microbatches) {
        for (const Place& place : run(schedule, stages, microbatches)) {
          EXPECT_EQ(place.next, place.actions.size()) << stages << " stages wait for each other";
          EXPECT_EQ(place.forward.size(), static_cast<size_t>(microbatches));
          EXPECT_EQ(place.backward.size(), static_cast<size_t>(microbatches));
        }
      }
    }
  }
}

TEST(PipelineScheduleTest, OneFOneBKeepsAsManyActivationsAsStagesFollow) {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    const auto places = run(Schedule::OneFOneB, stages, 12);
    for (int64_t i = 0; i < stages; ++i) {
      EXPECT_EQ(places[static_cast<size_t>(i)].most_alive, static_cast<size_t>(stages - i));
    }
  }
  EXPECT_EQ(run(Schedule::GPipe, 3, 12)[2].most_alive, 12U);
}

TEST(PipelineScheduleTest, ReadsAsInThePapers) {
  const auto text = [](Schedule schedule, int64_t stage) {
    std::string all;
    for (const auto& [kind, m] : schedule_actions(schedule, 3, stage, 4)) {
      all += (all.empty() ? "" : " ") + std::string(kind == Kind::forward ? "F" : "B") + std::to_string(m);
    }
    return all;
  };
  EXPECT_EQ(text(Schedule::GPipe, 1), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(text(Schedule::OneFOneB, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text(Schedule::OneFOneB, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(Schedule::OneFOneB, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

}  // namespace
}  // namespace sherd
