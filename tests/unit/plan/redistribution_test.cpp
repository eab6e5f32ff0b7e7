// Plans for redistributions: the fewest bytes, compared with a search through all sequences of collectives and with
// what must be moved in any case.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <queue>

#include "plan/crossing.h"
#include "plan/redistribute.h"
#include "plan/relabel.h"
#include "plan/transfer.h"
#include "property/random_layout.h"
#include "sherd/explain.h"

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

std::vector<int64_t> ranks_of_both(const Mesh& a, const Mesh& b) {
  std::vector<int64_t> ranks = a.ranks();
  for (const int64_t rank : b.ranks()) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// What must be moved in any case. Each element of the tensor: one copy of every part that a reduction needs but one
// goes to where it is reduced; and every rank that wants the value gets it, but the one that made it or had it.
int64_t elements_needed(const Layout& before, const Layout& after) {
  int64_t parts = 1;
  for (size_t axis = 0; axis < before.placements.size(); ++axis) {
    if (is_partial(before.placements[axis])) parts *= before.mesh.size(static_cast<int64_t>(axis));
  }
  const Dims& shape = before.shape;
  const auto places = ranks_of_both(before.mesh, after.mesh);
  std::vector<std::optional<RunGrid>> had;
  std::vector<std::optional<RunGrid>> wanted;
  for (const int64_t rank : places) {
    const auto grid = [&](const Layout& layout) {
      const auto here = layout.mesh.coordinate_of(rank);
      return here ? std::optional(grid_of(layout, *here)) : std::nullopt;
    };
    had.push_back(grid(before));
    wanted.push_back(grid(after));
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
      const bool wants = wanted[rank] && overlap(element, *wanted[rank]) > 0;
      const bool has = had[rank] && overlap(element, *had[rank]) > 0;
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

std::vector<Placements> all_lists(const Mesh& mesh, int64_t ndim, ReduceOp op) {
  std::vector<Placement> choices = {Replicate(), Partial(op)};
  for (int64_t d = 0; d < ndim; ++d) choices.emplace_back(Shard(d));
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

void compare_with_search(const char* mesh_text, const Dims& shape, ReduceOp op = ReduceOp::sum) {
  const Mesh mesh = parse_mesh(mesh_text);
  const auto lists = all_lists(mesh, static_cast<int64_t>(shape.size()), op);
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
  for (const ReduceOp op : {ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
    compare_with_search("[a=4]", {8, 4}, op);
    compare_with_search("[a=3, b=2]", {6, 12}, op);
    compare_with_search("[a=2, b=2, c=2]", {8}, op);
  }
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
    for (Placement& p : to) {
      if (is_partial(p)) p = Replicate();
    }
    const auto plan = plan_redistribution(mesh, shape, 4, from, to, {.prefer = Prefer::bytes});
    EXPECT_EQ(elements_moved(mesh, shape, from, plan), elements_needed({mesh, shape, from}, {mesh, shape, to}))
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

// Two layouts of one shape on two meshes, the second without Partials.
std::pair<Layout, Layout> two_layouts(RandomLayout& random, int64_t ranks, Dims shape) {
  const auto layout = [&] {
    Layout result{random.mesh(ranks), shape, {}};
    result.placements = random.placements(result.mesh, shape);
    return result;
  };
  std::pair<Layout, Layout> both{layout(), layout()};
  for (Placement& p : both.second.placements) {
    if (is_partial(p)) p = Replicate();
  }
  return both;
}

bool has_partials(const Layout& layout) {
  return std::any_of(layout.placements.begin(), layout.placements.end(),
                     [](const Placement& p) { return is_partial(p); });
}

// What all ranks together receive from others, and whether what is given is what is taken.
int64_t received(const std::vector<int64_t>& ranks, const std::function<Transfers(int64_t)>& of) {
  int64_t elements = 0;
  std::map<std::pair<int64_t, int64_t>, std::vector<RunGrid>> given;
  std::map<std::pair<int64_t, int64_t>, std::vector<RunGrid>> taken;
  for (const int64_t rank : ranks) {
    const Transfers mine = of(rank);
    for (const Transfer& give : mine.gives) given[{rank, give.rank}].push_back(give.rows);
    for (const Transfer& take : mine.takes) {
      taken[{take.rank, rank}].push_back(take.rows);
      if (take.rank != rank) elements += numel(take.rows);
    }
  }
  EXPECT_EQ(given, taken);
  return elements;
}

// To another mesh, Partials of every kind among them.
TEST(CrossingTest, MovesWhatIsNeededAndNoMore) {
  int cases = 0;
  int sums = 0;
  for (uint64_t seed = 0; cases < 600; ++seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    if (sherd::numel(shape) > 300 || sherd::numel(shape) == 0) continue;
    const auto [from, to] = two_layouts(random, 12, shape);
    if (!has_partials(from) && random.chance(70)) continue;
    ++cases;
    const auto ranks = ranks_of_both(from.mesh, to.mesh);
    const auto plan = plan_crossing(from, to, 4, {.prefer = Prefer::bytes});
    int64_t moved = 0;
    if (plan.steps[0].action == Action::cross) {
      moved = received(ranks, [&](int64_t rank) { return transfers(from, to, rank); });
    } else {
      ++sums;
      const bool shared = plan.steps.size() > 1;
      std::map<int64_t, Reductions> work;
      for (const int64_t rank : ranks) work[rank] = reductions(from, to, rank, shared);
      moved = received(ranks, [&](int64_t rank) { return work[rank].contributions; }) +
              received(ranks, [&](int64_t rank) { return work[rank].results; });
      for (const int64_t rank : ranks) {
        const auto here = to.mesh.coordinate_of(rank);
        int64_t wanted = here ? numel(grid_of(to, *here)) : 0;
        int64_t reduced = 0;
        for (const RunGrid& piece : work[rank].pieces) reduced += numel(piece);
        int64_t parts = 0;
        for (const Transfer& take : work[rank].contributions.takes) parts += numel(take.rows);
        EXPECT_EQ(parts, reduced * static_cast<int64_t>(work[rank].parts));
        for (const Transfer& take : work[rank].results.takes) wanted -= numel(take.rows);
        EXPECT_EQ(wanted, shared ? 0 : reduced);
      }
    }
    EXPECT_EQ(moved, elements_needed(from, to))
        << "seed " << seed << ": " << to_string(from.mesh) << " " << sherd::to_string(from.placements) << " -> "
        << to_string(to.mesh) << " " << sherd::to_string(to.placements) << " of " << sherd::to_string(shape) << ": "
        << to_string(plan, to.mesh);
    int64_t bytes = 0;  // each step's are rounded down
    for (const Step& step : plan.steps) bytes += step.bytes * to.mesh.size();
    EXPECT_LE(bytes, 4 * moved);
    EXPECT_GT(bytes + 2 * to.mesh.size(), 4 * moved);
  }
  EXPECT_GT(sums, 200);
}

TEST(CrossingTest, ThePlanIsTold) {
  const auto text = [](const char* from, const char* mesh, const char* to, const char* to_mesh, CommCosts costs = {}) {
    const Mesh first = parse_mesh(mesh);
    const Mesh second = parse_mesh(to_mesh);
    return explain_redistribution(parse_tensor(from, first), first, parse_tensor(to, second), second, costs);
  };
  EXPECT_EQ(text("f32[1024@a, 64]", "[a=4]", "f32[1024@b, 64]", "[b=2]"), "exchange to [b=2] 96.0 KiB");
  EXPECT_EQ(text("f32[1024, 64] P(sum)@a", "[a=4]", "f32[1024@b, 64]", "[b=2]"), "reduce to [b=2] 384.0 KiB");
  EXPECT_EQ(text("f32[1024, 64] P(sum)@a", "[a=4]", "f32[1024, 64]", "[b=2]"),
            "reduce to [b=2] 384.0 KiB, exchange@b 128.0 KiB");
  // A small one is reduced by each that wants it.
  EXPECT_EQ(text("f32[16, 4] P(max)@a", "[a=4]", "f32[16, 4]", "[b=2]"),
            "reduce to [b=2] 768 B; 256 B more than the fewest, for 3 messages instead of 4");
  EXPECT_EQ(text("f32[16, 4@a]", "[a=4]", "f32[16@a, 4]", "[a=4]"), "exchange@a 48 B");
}

// A rank's plan to another mesh of 16,384 ranks is made of what it touches.
TEST(CrossingTest, ThousandsOfRanks) {
  const Layout from{parse_mesh("[a=2048, b=8]"), {1 << 20, 4096}, {Shard(0), Partial()}};
  const Layout to{parse_mesh("[c=8192, d=2]"), {1 << 20, 4096}, {Shard(0), Replicate()}};
  const Reductions mine = reductions(from, to, 9000, true);
  EXPECT_EQ(mine.pieces.size(), 1U);
  EXPECT_EQ(mine.contributions.takes.size(), 8U);
  EXPECT_LE(mine.contributions.gives.size(), 8U);
  EXPECT_LE(mine.results.takes.size(), 2U);
  EXPECT_EQ(to_string(plan_crossing(from, to, 4), to.mesh), "reduce to [c=8192, d=2] 7.0 MiB, exchange@d 1.0 MiB");
}

TEST(RelabelTest, NoOrderOfTheRanksMovesLess) {
  int cases = 0;
  for (uint64_t seed = 0; cases < 80; ++seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    if (sherd::numel(shape) > 3000) continue;
    auto [from, to] = two_layouts(random, 6, shape);
    if (to.mesh.size() < 2 || has_partials(from)) continue;
    ++cases;
    const auto moved = [&, from = from, to = to](const Mesh& mesh) {
      const Layout target{mesh, to.shape, to.placements};
      int64_t elements = 0;
      for (const int64_t rank : mesh.ranks()) {
        for (const Transfer& take : takes_of(from, {rank, 0, grid_of(target, *mesh.coordinate_of(rank))})) {
          if (take.rank != rank) elements += numel(take.rows);
        }
      }
      return elements;
    };
    std::vector<int64_t> ranks = to.mesh.ranks();
    std::sort(ranks.begin(), ranks.end());
    int64_t fewest = moved(to.mesh);
    do {
      fewest = std::min(fewest, moved(Mesh(to.mesh.axes(), ranks)));
    } while (std::next_permutation(ranks.begin(), ranks.end()));
    EXPECT_EQ(moved(relabel(from, to)), fewest)
        << "seed " << seed << ": " << to_string(from.mesh) << " " << sherd::to_string(from.placements) << " -> "
        << to_string(to.mesh) << " " << sherd::to_string(to.placements) << " of " << sherd::to_string(shape);
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
