// Plans for redistributions: the fewest bytes, compared with a search through all sequences of collectives and with
// what must be moved in any case.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <queue>

#include "plan/redistribute.h"
#include "plan/transfer.h"
#include "property/random_layout.h"

namespace sherd::plan {
namespace {

using sherd::testing::RandomLayout;

std::vector<Dims> places_of(const Mesh& mesh) {
  std::vector<Dims> places;
  for (int64_t i = 0; i < mesh.size(); ++i) places.push_back(mesh.coordinate_at(i));
  return places;
}

// The elements that all ranks together receive in a plan, element by element.
int64_t elements_moved(const Mesh& mesh, const Dims& shape, const Placements& from, const Redistribution& plan) {
  int64_t total = 0;
  Held held(mesh, shape, from);
  for (const Step& step : plan.steps) {
    Held next = held;
    next.become(step.after, step.cut);
    int64_t n = 1;
    for (const int64_t axis : step.axes) n *= mesh.size(axis);
    int64_t reduced = 0;
    for (const Dims& place : places_of(mesh)) {
      const RunGrid wanted = next.grid(place);
      if (step.action == Action::exchange) total += numel(wanted) - overlap(held.grid(place), wanted);
      if (step.action == Action::reduce_scatter) total += (n - 1) * numel(wanted);
      if (step.action == Action::all_reduce) reduced += numel(wanted);
    }
    // What a rank's share of the result costs to reduce, and the shares of the others to receive.
    total += 2 * (n - 1) * reduced / n;
    held = next;
  }
  return total;
}

// What must be moved in any case. Each element of the tensor: one copy of every part that a reduction needs but one
// goes to where it is reduced; and every rank that wants the value gets it, but the one that made it or had it.
int64_t elements_needed(const Mesh& mesh, const Dims& shape, const Placements& from, const Placements& to) {
  int64_t parts = 1;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (is_partial(from[axis])) parts *= mesh.size(static_cast<int64_t>(axis));
  }
  const Layout before{mesh, shape, from};
  const Layout after{mesh, shape, to};
  const auto places = places_of(mesh);
  std::vector<RunGrid> had;
  std::vector<RunGrid> wanted;
  for (const Dims& place : places) {
    had.push_back(grid_of(before, place));
    wanted.push_back(grid_of(after, place));
  }
  int64_t needed = 0;
  const Mesh elements([&] {
    std::vector<MeshAxis> axes;
    for (const int64_t size : shape) axes.push_back({"", size});
    return axes;
  }());
  for (int64_t i = 0; i < elements.size(); ++i) {
    const Dims at = elements.coordinate_at(i);
    const RunGrid element = grid_of(Box{at, Dims(at.size(), 1)});
    int64_t wanting = 0;
    int64_t having = 0;
    int64_t both = 0;
    for (size_t rank = 0; rank < places.size(); ++rank) {
      const bool wants = overlap(element, wanted[rank]) > 0;
      const bool has = overlap(element, had[rank]) > 0;
      wanting += wants ? 1 : 0;
      having += has ? 1 : 0;
      both += wants && has ? 1 : 0;
    }
    if (parts == 1) {
      needed += wanting - both;
    } else {
      needed += parts - 1 + wanting - (both > 0 ? 1 : 0);
    }
  }
  return needed;
}

std::vector<Placements> all_lists(const Mesh& mesh, int64_t ndim, bool partial) {
  std::vector<Placement> choices = {Replicate()};
  for (int64_t d = 0; d < ndim; ++d) choices.emplace_back(Shard(d));
  if (partial) choices.emplace_back(Partial());
  std::vector<Placements> lists = {{}};
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& list : lists) {
      for (const Placement& p : choices) {
        longer.push_back(list);
        longer.back().push_back(p);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

// The fewest elements moved by any sequence of collectives along one axis each, through any placement lists.
class Search {
 public:
  Search(const Mesh& mesh, const Dims& shape, std::vector<Placements> lists)
      : mesh_(mesh), shape_(shape), lists_(std::move(lists)) {}

  // From one list to all that can be reached.
  std::map<size_t, int64_t> from(size_t start) const {
    std::map<size_t, int64_t> best;
    std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>, std::greater<>> open;
    open.push({0, start});
    while (!open.empty()) {
      const auto [cost, list] = open.top();
      open.pop();
      if (!best.emplace(list, cost).second) continue;
      for (size_t next = 0; next < lists_.size(); ++next) {
        if (best.count(next) > 0) continue;
        if (const auto more = one_step(lists_[list], lists_[next])) open.push({cost + *more, next});
      }
    }
    return best;
  }

 private:
  std::optional<int64_t> one_step(const Placements& a, const Placements& b) const {
    size_t axis = a.size();
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;
      if (axis != a.size()) return std::nullopt;
      axis = i;
    }
    if (axis == a.size() || is_partial(b[axis])) return std::nullopt;
    const int64_t n = mesh_.size(static_cast<int64_t>(axis));
    const Layout before{mesh_, shape_, a};
    const Layout after{mesh_, shape_, b};
    int64_t total = 0;
    for (const Dims& place : places_of(mesh_)) {
      const RunGrid has = grid_of(before, place);
      const RunGrid wants = grid_of(after, place);
      if (!is_partial(a[axis])) {
        total += numel(wants) - overlap(has, wants);
      } else if (is_replicate(b[axis])) {
        total += 2 * (n - 1) * numel(wants) / n;
      } else {
        if (overlap(has, wants) != numel(wants)) return std::nullopt;  // no scatter of what the ranks hold
        total += (n - 1) * numel(wants);
      }
    }
    return total;
  }

  const Mesh& mesh_;
  const Dims& shape_;
  std::vector<Placements> lists_;
};

void compare_with_search(const char* mesh_text, const Dims& shape) {
  const Mesh mesh = parse_mesh(mesh_text);
  const auto lists = all_lists(mesh, static_cast<int64_t>(shape.size()), true);
  const Search search(mesh, shape, lists);
  for (size_t start = 0; start < lists.size(); ++start) {
    for (const auto& [end, fewest] : search.from(start)) {
      const auto plan = plan_redistribution(mesh, shape, 4, lists[start], lists[end], {.prefer = Prefer::bytes});
      const int64_t moved = elements_moved(mesh, shape, lists[start], plan);
      ASSERT_LE(moved, fewest) << to_string(lists[start]) << " -> " << to_string(lists[end]) << ": "
                               << to_string(plan, mesh);
    }
  }
}

TEST(RedistributionTest, NoSequenceOfCollectivesMovesLess) {
  compare_with_search("[a=4]", {8, 4});
  compare_with_search("[a=2, b=4]", {8, 8});
  compare_with_search("[a=3, b=2]", {6, 12});
  compare_with_search("[a=2, b=2, c=2]", {8, 8});
  compare_with_search("[a=2, b=2, c=2, d=2]", {16});
}

TEST(RedistributionTest, MovesWhatIsNeededAndNoMore) {
  int cases = 0;
  for (uint64_t seed = 0; cases < 1500; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(16);
    Dims shape = random.shape();
    if (sherd::numel(shape) > 400 || sherd::numel(shape) == 0 || shape.empty()) continue;
    Placements from = random.placements(mesh, shape);
    Placements to = random.placements(mesh, shape);
    bool kinds = false;  // reductions of two kinds are made one after the other
    for (Placement& p : from) kinds |= is_partial(p) && std::get<Partial>(p).op != ReduceOp::sum;
    if (kinds) continue;
    for (Placement& p : to) {
      if (is_partial(p)) p = Replicate();
    }
    const auto plan = plan_redistribution(mesh, shape, 4, from, to, {.prefer = Prefer::bytes});
    EXPECT_EQ(elements_moved(mesh, shape, from, plan), elements_needed(mesh, shape, from, to))
        << "seed " << seed << ": " << to_string(mesh) << " " << sherd::to_string(shape) << " " << sherd::to_string(from)
        << " -> " << to_string(to) << ": " << to_string(plan, mesh);
    ++cases;
  }
}

TEST(RedistributionTest, ReducesOverTwoAxesAtOnce) {
  const Mesh mesh = parse_mesh("[dp=2, tp=4]");
  const auto text = [&](const char* from, const char* to, PlanOptions options = {}) {
    return to_string(plan_redistribution(mesh, {1024, 512}, 4, parse_placements(from), parse_placements(to), options),
                     mesh);
  };
  EXPECT_EQ(text("(P(sum), P(sum))", "(R, R)"), "all_reduce@dp@tp 3.5 MiB");
  EXPECT_EQ(text("(P(sum), P(sum))", "(S(0), S(1))"), "reduce_scatter@dp@tp 1.8 MiB");
  EXPECT_EQ(text("(S(0), S(0))", "(R, R)"), "exchange@dp@tp 1.8 MiB");
  // Ranks that hold the same parts take turns in reducing them.
  EXPECT_EQ(text("(R, P(sum))", "(R, R)"), "slice@dp, reduce_scatter@tp 768.0 KiB, exchange@dp@tp 1.8 MiB");
  EXPECT_EQ(text("(R, P(sum))", "(R, R)", {.prefer = Prefer::latency, .costs = {.message = 1e-3}}),
            "all_reduce@tp 3.0 MiB; 512.0 KiB more than the fewest, for 6 messages instead of 10");
}

TEST(RedistributionTest, SmallTensorsTradeBytesForMessages) {
  const Mesh mesh = parse_mesh("[dp=8, tp=8]");
  const auto plan =
      plan_redistribution(mesh, {64, 64}, 4, parse_placements("(S(0), S(1))"), parse_placements("(S(1), S(0))"));
  EXPECT_LT(plan.messages, 63);
  EXPECT_GT(plan.bytes, plan.fewest_bytes);
  const auto large =
      plan_redistribution(mesh, {4096, 4096}, 4, parse_placements("(S(0), S(1))"), parse_placements("(S(1), S(0))"));
  EXPECT_EQ(large.steps.size(), 1U);
  EXPECT_EQ(large.bytes, large.fewest_bytes);
}

// A rank's plan on 16,384 ranks names the ranks that it touches, not all.
TEST(TransferTest, ThousandsOfRanks) {
  const Layout from{parse_mesh("[a=128, b=128]"), {1 << 20, 4096}, {Shard(0), Replicate()}};
  const Layout to{parse_mesh("[c=512, d=32]"), {1 << 20, 4096}, {Shard(0), Shard(1)}};
  for (const int64_t rank : {0, 77, 9000, 16383}) {
    const Transfers mine = transfers(from, to, rank);
    ASSERT_EQ(mine.takes.size(), 1U);  // a rank wants a part of what one row of ranks has
    const Transfer& take = mine.takes[0];
    const auto theirs = transfers(from, to, take.rank).gives;
    EXPECT_TRUE(std::any_of(theirs.begin(), theirs.end(),
                            [&](const Transfer& give) { return give.rank == rank && give.rows == take.rows; }));
    EXPECT_LE(mine.gives.size(), 128U);
  }
}

// What one side gives the other takes, in the same order.
TEST(TransferTest, BothSidesAgree) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    const auto layout = [&] {
      Layout result{random.mesh(12), shape, {}};
      result.placements = random.placements(result.mesh, shape);
      for (Placement& p : result.placements) {
        if (is_partial(p)) p = Replicate();
      }
      return result;
    };
    const Layout from = layout();
    const Layout to = layout();
    std::map<std::pair<int64_t, int64_t>, std::vector<RunGrid>> given;
    std::map<std::pair<int64_t, int64_t>, std::vector<RunGrid>> taken;
    for (int64_t rank = 0; rank < 30; ++rank) {
      const Transfers mine = transfers(from, to, rank);
      for (const Transfer& give : mine.gives) given[{rank, give.rank}].push_back(give.rows);
      int64_t elements = 0;
      for (const Transfer& take : mine.takes) {
        taken[{take.rank, rank}].push_back(take.rows);
        elements += numel(take.rows);
      }
      const auto here = to.mesh.coordinate_of(rank);
      EXPECT_EQ(elements, here ? numel(grid_of(to, *here)) : 0);
    }
    EXPECT_EQ(given, taken) << "seed " << seed;
  }
}

TEST(CostsTest, TextsAreReadBack) {
  const CommCosts costs{.call = 2.5e-5, .message = 1e-6, .byte = 3e-10};
  EXPECT_EQ(sherd::to_string(costs), "call=2.5e-05,message=1e-06,byte=3e-10");
  EXPECT_EQ(parse_costs(sherd::to_string(costs)), costs);
  for (const char* text :
       {"", "call=1", "call=1,message=2,byte=-1", "call=1,message=2,byte=3 ", "call=x,message=1,byte=1"}) {
    try {
      parse_costs(text);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()), "parse_costs: these are no costs of communication\n  text: \"" +
                                               std::string(text) + "\"\n  help: call=3e-05,message=1e-05,byte=1e-09");
    }
  }
}

}  // namespace
}  // namespace sherd::plan
