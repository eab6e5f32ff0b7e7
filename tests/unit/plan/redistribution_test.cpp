// Plans for redistributions: the fewest bytes and then the least time, compared with a search through all sequences of
// collectives and with what must be moved in any case.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "plan/crossing.h"
#include "plan/places.h"
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

// Whether two places differ at most along these axes.
bool differ_along(const Dims& a, const Dims& b, const std::vector<int64_t>& axes) {
  for (size_t axis = 0; axis < a.size(); ++axis) {
    const bool free = std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
    if (!free && a[axis] != b[axis]) return false;
  }
  return true;
}

struct Effort {
  int64_t elements = 0;  // that all ranks receive
  double calls = 0;      // seconds for calls and messages
  double seconds = 0;    // these and the bytes

  Effort operator+(const Effort& more) const {
    return {elements + more.elements, calls + more.calls, seconds + more.seconds};
  }
  bool has_fewer(const Effort& other) const {
    return elements != other.elements ? elements < other.elements : calls < other.calls;
  }
  bool is_faster(const Effort& other) const { return seconds < other.seconds; }
};

// The best sequence of collectives along one axis or several, through any placement lists.
class Search {
 public:
  using Better = bool (Effort::*)(const Effort&) const;

  Search(const Mesh& mesh, const Dims& shape, const std::vector<Placements>& lists, const CommCosts& costs)
      : mesh_(mesh), places_(places_of(mesh)), lists_(lists), costs_(costs) {
    for (const Placements& list : lists) {
      grids_.emplace_back();
      for (const Dims& place : places_) grids_.back().push_back(grid_of(Layout{mesh, shape, list}, place));
    }
    for (size_t a = 0; a < lists.size(); ++a) {
      steps_.emplace_back();
      for (size_t b = 0; b < lists.size(); ++b) {
        if (const auto effort = step(a, b)) steps_.back().push_back({b, *effort});
      }
    }
  }

  // From one list to all that can be reached.
  std::map<size_t, Effort> from(size_t start, Better better) const {
    std::map<size_t, Effort> best;
    std::map<size_t, Effort> open = {{start, {}}};
    while (!open.empty()) {
      auto next = open.begin();
      for (auto it = open.begin(); it != open.end(); ++it) {
        if ((it->second.*better)(next->second)) next = it;
      }
      const auto [list, effort] = *next;
      open.erase(next);
      best.emplace(list, effort);
      for (const auto& [to, more] : steps_[list]) {
        if (best.count(to) > 0) continue;
        const auto [found, is_new] = open.try_emplace(to, effort + more);
        if (!is_new && ((effort + more).*better)(found->second)) found->second = effort + more;
      }
    }
    return best;
  }

 private:
  // One collective, or none where every rank has what it wants.
  std::optional<Effort> step(size_t from, size_t to) const {
    const Placements& a = lists_[from];
    const Placements& b = lists_[to];
    int64_t n = 1;
    int changed = 0, partial = 0, whole = 0;
    for (size_t axis = 0; axis < a.size(); ++axis) {
      if (a[axis] == b[axis]) continue;
      if (is_partial(b[axis])) return std::nullopt;
      n *= mesh_.size(static_cast<int64_t>(axis));
      ++changed;
      partial += is_partial(a[axis]) ? 1 : 0;
      whole += is_replicate(b[axis]) ? 1 : 0;
    }
    const bool scatters = whole == 0;
    if (changed == 0 || (partial > 0 && (partial < changed || (!scatters && whole < changed)))) return std::nullopt;
    int64_t elements = 0;
    for (size_t place = 0; place < places_.size(); ++place) {
      const RunGrid& has = grids_[from][place];
      const RunGrid& wants = grids_[to][place];
      const int64_t lacks = numel(wants) - overlap(has, wants);
      if (partial > 0 && scatters && lacks > 0) return std::nullopt;  // no scatter of what the ranks hold
      elements += partial == 0 ? lacks : (scatters ? 1 : 2) * (n - 1) * numel(wants);
    }
    if (partial > 0 && !scatters) elements /= n;
    const int64_t messages = partial == 0 ? ranks_with_all(from, to) - 1 : (scatters ? 1 : 2) * (n - 1);
    const int64_t bytes = elements * 4 / static_cast<int64_t>(places_.size());
    return Effort{elements, costs_.seconds(messages, 0), costs_.seconds(messages, bytes)};
  }

  // The fewest ranks, along axes that cut the tensor, who have among them what each of them wants.
  int64_t ranks_with_all(size_t from, size_t to) const {
    std::vector<int64_t> cutting;
    for (int64_t axis = 0; axis < mesh_.ndim(); ++axis) {
      if (is_shard(lists_[from][static_cast<size_t>(axis)])) cutting.push_back(axis);
    }
    int64_t fewest = mesh_.size();
    for (size_t subset = 0; subset < size_t{1} << cutting.size(); ++subset) {
      std::vector<int64_t> axes;
      int64_t ranks = 1;
      for (size_t i = 0; i < cutting.size(); ++i) {
        if ((subset >> i & 1) == 0) continue;
        axes.push_back(cutting[i]);
        ranks *= mesh_.size(cutting[i]);
      }
      if (ranks < fewest && have_all(from, to, axes)) fewest = ranks;
    }
    return fewest;
  }

  bool have_all(size_t from, size_t to, const std::vector<int64_t>& axes) const {
    for (size_t place = 0; place < places_.size(); ++place) {
      const RunGrid& wants = grids_[to][place];
      int64_t found = 0;
      for (size_t other = 0; other < places_.size(); ++other) {
        if (differ_along(places_[place], places_[other], axes)) found += overlap(grids_[from][other], wants);
      }
      if (found != numel(wants)) return false;
    }
    return true;
  }

  const Mesh& mesh_;
  const std::vector<Dims> places_;
  const std::vector<Placements>& lists_;
  const CommCosts costs_;
  std::vector<std::vector<RunGrid>> grids_ = {};                    // by list and place
  std::vector<std::vector<std::pair<size_t, Effort>>> steps_ = {};  // by list
};

struct SearchCase {
  const char* mesh;
  Dims shape;
  ReduceOp op = ReduceOp::sum;
  CommCosts costs = {};
};

// For every pair of lists: no sequence moves less, none that moves as little takes less time, none is faster than the
// plan for the least time.
void compare_with_search(const SearchCase& c) {
  const Mesh mesh = parse_mesh(c.mesh);
  const auto lists = all_lists(mesh, static_cast<int64_t>(c.shape.size()), c.op);
  const Search search(mesh, c.shape, lists, c.costs);
  for (size_t start = 0; start < lists.size(); ++start) {
    const auto fastest = search.from(start, &Effort::is_faster);
    for (const auto& [end, fewest] : search.from(start, &Effort::has_fewer)) {
      const auto planned = [&, to = lists[end]](Prefer prefer) {
        return plan_redistribution(mesh, c.shape, 4, lists[start], to, {.prefer = prefer, .costs = c.costs});
      };
      const std::string what = fmt::format("{} {} -> {}", c.mesh, to_string(lists[start]), to_string(lists[end]));
      const auto plan = planned(Prefer::bytes);
      const int64_t moved = elements_moved(mesh, c.shape, lists[start], plan);
      double calls = 0;
      for (const Step& step : plan.steps) calls += c.costs.seconds(step.messages, 0);
      ASSERT_LE(moved, fewest.elements) << what << ": " << to_string(plan, mesh);
      if (moved == fewest.elements) {
        ASSERT_LE(calls, fewest.calls * (1 + 1e-9)) << what << ": " << to_string(plan, mesh);
      }
      const auto fast = planned(Prefer::latency);
      // Each step's bytes are rounded down.
      ASSERT_LE(seconds(fast, c.costs), fastest.at(end).seconds + 1e-8) << what << ": " << to_string(fast, mesh);
    }
  }
}

TEST(RedistributionTest, NoSequenceOfCollectivesMovesLessOrAsMuchInLessTime) {
  const CommCosts slow_calls{.call = 1e-4, .message = 1e-6};
  for (const CommCosts& costs : {CommCosts(), slow_calls}) {
    compare_with_search({"[a=4]", {8, 4}, ReduceOp::sum, costs});
    compare_with_search({"[a=2, b=4]", {8, 8}, ReduceOp::sum, costs});
    compare_with_search({"[a=2, b=4]", {7, 5}, ReduceOp::sum, costs});
    compare_with_search({"[a=3, b=2]", {6, 12}, ReduceOp::sum, costs});
    compare_with_search({"[a=4, b=4]", {16, 16}, ReduceOp::sum, costs});
    compare_with_search({"[a=2, b=2, c=2]", {8, 8}, ReduceOp::sum, costs});
    compare_with_search({"[a=2, b=2, c=4]", {16}, ReduceOp::sum, costs});
    compare_with_search({"[a=2, b=2, c=2, d=2]", {16}, ReduceOp::sum, costs});
  }
  for (const ReduceOp op : {ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
    compare_with_search({"[a=4]", {8, 4}, op});
    compare_with_search({"[a=3, b=2]", {6, 12}, op});
    compare_with_search({"[a=2, b=2, c=2]", {8}, op});
  }
}

std::vector<RunGrid> grids_of(const Held& held, const std::vector<Dims>& places) {
  std::vector<RunGrid> grids;
  for (const Dims& place : places) grids.push_back(held.grid(place));
  return grids;
}

// Rows that a rank keeps for a target are those of all places with its coordinate along the axes concerned.
TEST(HeldTest, KeptRowsAreThoseOfEveryPlaceAlongTheOtherAxes) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(24);
    const Dims shape = random.shape();
    Layout target{mesh, shape, random.placements(mesh, shape)};
    const Placements held_placements = random.placements(mesh, shape);
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < target.placements.size(); ++axis) {
      if (is_shard(target.placements[axis]) && random.chance(50)) axes.push_back(static_cast<int64_t>(axis));
    }
    Held held(mesh, shape, held_placements);
    held.become(held_placements, {.target = target.placements, .axes = axes});
    for (const Dims& place : places_of(mesh)) {
      RunGrid kept(shape.size());
      for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
        std::set<int64_t> rows;  // of the target, along the axes that are among `axes` and cut this dim
        for (const Dims& other : places_of(mesh)) {
          bool counts = true;
          for (const int64_t axis : axes) {
            const auto a = static_cast<size_t>(axis);
            counts = counts && (sharded_dim(target.placements[a]) != d || other[a] == place[a]);
          }
          if (!counts) continue;
          for (const sherd::Run& run : local_runs(target, d, other)) {
            for (int64_t row = run.offset; row < run.offset + run.size; ++row) rows.insert(row);
          }
        }
        for (const sherd::Run& run : local_runs(Layout{mesh, shape, held_placements}, d, place)) {
          for (int64_t row = run.offset; row < run.offset + run.size; ++row) {
            if (rows.count(row) > 0) kept[static_cast<size_t>(d)].push_back({row, 1});
          }
        }
      }
      const RunGrid grid = held.grid(place);
      ASSERT_EQ(numel(grid), numel(kept)) << "seed " << seed;
      ASSERT_EQ(overlap(grid, kept), numel(kept)) << "seed " << seed;
    }
  }
}

// What a rank keeps, or gives to others to reduce, it has. What it receives lies along the step's axes, once.
TEST(RedistributionTest, EveryStepHasWhatItTakes) {
  int scattered = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(24);
    const Dims shape = random.shape();
    if (shape.empty()) continue;
    const Placements from = random.placements(mesh, shape);
    Placements to = random.placements(mesh, shape);
    for (Placement& p : to) {
      if (is_partial(p)) p = Replicate();
    }
    const std::vector<Dims> places = places_of(mesh);
    for (const Prefer prefer : {Prefer::bytes, Prefer::latency, Prefer::simple}) {
      const auto plan = plan_redistribution(mesh, shape, 4, from, to, {.prefer = prefer});
      Held held(mesh, shape, from);
      for (const Step& step : plan.steps) {
        const std::vector<RunGrid> before = grids_of(held, places);
        held.become(step.after, step.cut);
        const std::vector<RunGrid> after = grids_of(held, places);
        scattered += step.action == Action::reduce_scatter ? 1 : 0;
        for (size_t i = 0; i < places.size(); ++i) {
          int64_t found = 0;
          for (size_t k = 0; k < places.size(); ++k) {
            const bool gives = step.action == Action::exchange ? differ_along(places[i], places[k], step.axes) : i == k;
            if (gives) found += overlap(before[k], after[i]);
          }
          ASSERT_EQ(found, numel(after[i]))
              << "seed " << seed << ": " << to_string(mesh) << " " << sherd::to_string(shape) << " "
              << sherd::to_string(from) << " -> " << to_string(to) << ": " << to_string(plan, mesh) << ", in "
              << to_string(step, mesh) << " at " << sherd::to_string(places[i]);
        }
      }
      EXPECT_EQ(held.placements(), to);
      EXPECT_TRUE(held.cut().empty());
    }
  }
  EXPECT_GT(scattered, 100);
}

// Ranks between the corners of a mesh may hold what those at the corners do not: nine rows on eight ranks.
TEST(RedistributionTest, RanksBetweenTheCornersCount) {
  const Mesh mesh = parse_mesh("[a=8, b=8]");
  const auto check = [&](const Dims& shape, const Placements& from, const Placements& to) {
    const auto plan = plan_redistribution(mesh, shape, 4, from, to, {.prefer = Prefer::bytes});
    const int64_t needed = elements_needed({mesh, shape, from}, {mesh, shape, to});
    EXPECT_EQ(elements_moved(mesh, shape, from, plan), needed) << to_string(plan, mesh);
    EXPECT_EQ(plan.bytes, needed * 4 / 64);
  };
  check({8, 9, 1, 1000}, {Shard(0), Shard(1)}, {Replicate(), Shard(2)});
  check({3, 3}, {Shard(0), Shard(1)}, {Shard(1), Shard(0)});
}

TEST(RedistributionTest, MovesWhatIsNeededAndNoMore) {
  int cases = 0;
  for (uint64_t seed = 0; cases < 1500; ++seed) {
    RandomLayout random(seed);
    const Mesh mesh = random.mesh(seed % 4 == 0 ? 48 : 16);
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
  EXPECT_EQ(text("(R, P(sum))", "(R, R)"), "slice@dp, all_reduce@tp 1.5 MiB, exchange@dp 1.0 MiB");
  EXPECT_EQ(text("(R, P(sum))", "(R, R)", {.prefer = Prefer::latency, .costs = {.message = 1e-3}}),
            "all_reduce@tp 3.0 MiB; 512.0 KiB more than the fewest, for 6 messages instead of 7");
}

// Along 64 ranks at once there are 63 messages, along eight and eight there are 14, for the same bytes.
TEST(RedistributionTest, OnALargeMeshEachAxisHasItsCall) {
  const Mesh mesh = parse_mesh("[dp=8, tp=8]");
  const auto text = [&](const char* from, const char* to, CommCosts costs = {}) {
    return to_string(plan_redistribution(mesh, {1024, 512}, 4, parse_placements(from), parse_placements(to),
                                         {.prefer = Prefer::bytes, .costs = costs}),
                     mesh);
  };
  EXPECT_EQ(text("(S(0), S(1))", "(R, R)"), "exchange@dp 224.0 KiB, exchange@tp 1.8 MiB");
  EXPECT_EQ(text("(P(sum), P(sum))", "(S(0), S(1))"), "reduce_scatter@dp 1.8 MiB, reduce_scatter@tp 224.0 KiB");
  EXPECT_EQ(text("(P(sum), P(sum))", "(R, R)"),
            "reduce_scatter@tp 1.8 MiB, all_reduce@dp 448.0 KiB, exchange@tp 1.8 MiB");
  const CommCosts slow_calls{.call = 1e-2};
  EXPECT_EQ(text("(S(0), S(1))", "(R, R)", slow_calls), "exchange@dp@tp 2.0 MiB");
  EXPECT_EQ(text("(P(sum), P(sum))", "(S(0), S(1))", slow_calls), "reduce_scatter@dp@tp 2.0 MiB");
  EXPECT_EQ(text("(P(sum), P(sum))", "(R, R)", slow_calls), "all_reduce@dp@tp 3.9 MiB");
  // 256 KiB of a rank would lie between the two.
  const Placements before = parse_placements("(S(0), S(1))");
  const PlanOptions little{.prefer = Prefer::bytes, .staging_bytes = (256 << 10) - 1};
  EXPECT_EQ(to_string(plan_redistribution(mesh, {1024, 512}, 4, before, parse_placements("(R, R)"), little), mesh),
            "exchange@dp@tp 2.0 MiB");
}

// Only ranks that lack something of each other talk.
TEST(RedistributionTest, AxesThatStayDoNotTalk) {
  const Mesh mesh = parse_mesh("[dp=2, tp=4]");
  const auto text = [&](const char* from, const char* to) {
    return to_string(plan_redistribution(mesh, {1024, 512}, 4, parse_placements(from), parse_placements(to)), mesh);
  };
  EXPECT_EQ(text("(S(0), S(0))", "(S(0), R)"), "exchange@tp 768.0 KiB");
  EXPECT_EQ(text("(S(0), S(1))", "(S(0), S(0))"), "exchange@tp 192.0 KiB");
  EXPECT_EQ(text("(S(0), R)", "(S(0), S(0))"), "slice@tp");
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
    return explain_redistribution(parse_tensor(from, first), first, parse_tensor(to, second), second, {.costs = costs});
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

// One rank of 175 would lose a row that it wants in the end.
TEST(RedistributionTest, WhereRowsDoNotDivideEveryPlaceOfALargeMeshIsLookedAt) {
  const Mesh mesh = parse_mesh("[pp=1, dp=7, cp=5, tp=5]");
  const Placements from = {Replicate(), Ragged(2, {0, 1, 4, 9, 9, 10, 11, 11}), Replicate(), Shard(0)};
  const Placements to = {Replicate(), Shard(2), Ragged(0, {0, 0, 1, 1, 1, 1}), Shard(2)};
  const auto plan = plan_redistribution(mesh, {1, 4, 11, 5}, 4, from, to, {.prefer = Prefer::bytes});
  EXPECT_EQ(to_string(plan, mesh), "exchange@dp@tp 1 B");
}

// Nothing is searched for nothing.
TEST(RedistributionTest, WithoutElementsThePlanIsTheFirstOne) {
  const Mesh mesh = parse_mesh("[a=8, b=8, c=8]");
  const Placements from = {Shard(0), Shard(1), Partial()};
  const Placements to = {Replicate(), Shard(0), Replicate()};
  const auto text = [&](Prefer prefer, int64_t rows) {
    return to_string(plan_redistribution(mesh, {rows, 1 << 20}, 4, from, to, {.prefer = prefer}), mesh);
  };
  EXPECT_EQ(text(Prefer::bytes, 0), text(Prefer::simple, 0));
  EXPECT_EQ(text(Prefer::latency, 0), text(Prefer::simple, 0));
}

// Ranks that hold the same share the giving, whatever the numbers of those that want it, and none gives an element more
// often than all ranks count with.
TEST(CrossingTest, ReplicasShareTheGiving) {
  const auto given = [](const Layout& from, const Layout& to) {
    std::map<int64_t, int64_t> elements;
    for (const int64_t rank : from.mesh.ranks()) {
      for (const Transfer& give : transfers(from, to, rank).gives) elements[rank] += numel(give.rows);
    }
    return elements;
  };
  const auto layout = [](const char* mesh, Placements placements) {
    return Layout{parse_mesh(mesh), {8}, std::move(placements)};
  };
  using Given = std::map<int64_t, int64_t>;
  const Layout whole = layout("[2]{0, 1}", {Replicate()});
  EXPECT_EQ(given(whole, layout("[3]{2, 4, 6}", {Replicate()})), (Given{{0, 16}, {1, 8}}));
  EXPECT_EQ(given(whole, layout("[4]{2, 4, 6, 8}", {Shard(0)})), (Given{{0, 4}, {1, 4}}));
  EXPECT_EQ(given(layout("[2, 2]", {Shard(0), Replicate()}),
                  layout("[4, 2]{4, 5, 6, 7, 8, 9, 10, 11}", {Replicate(), Shard(0)})),
            (Given{{0, 8}, {1, 8}, {2, 8}, {3, 8}}));
  int cases = 0;
  for (uint64_t seed = 0; cases < 300; ++seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    if (sherd::numel(shape) > 300 || sherd::numel(shape) == 0) continue;
    const auto [from, to] = two_layouts(random, 12, shape);
    if (has_partials(from)) continue;
    ++cases;
    int64_t largest = 0;
    for (const int64_t rank : from.mesh.ranks()) {
      largest = std::max(largest, numel(grid_of(from, *from.mesh.coordinate_of(rank))));
    }
    for (const auto& [rank, elements] : given(from, to)) {
      EXPECT_LE(elements, largest * most_times_given(from, to)) << "seed " << seed;
    }
  }
}

// Each piece lies at one place, and all that comes to it is all of it: rounds take shares of both.
TEST(CrossingTest, BoxesOfPartialsComeInPieces) {
  const Layout from{parse_mesh("[2, 2]"), {8, 4}, {Shard(0), Partial()}};
  std::vector<RankPart> wanted;
  for (const int64_t rank : from.mesh.ranks()) {
    wanted.push_back({rank, 0, grid_of(Box{{0, 0}, {8, 4}})});
    wanted.push_back({rank, 1, grid_of(Box{{5, 0}, {1, 2}})});
  }
  for (const int64_t rank : from.mesh.ranks()) {
    const Contributions work = contributions(from, wanted, rank);
    ASSERT_EQ(work.parts, 2U);
    ASSERT_EQ(work.pieces.size(), 3U);
    EXPECT_EQ(work.pieces[0].number, 0U);
    EXPECT_EQ(work.pieces[1].number, 0U);
    EXPECT_EQ(work.pieces[2].number, 1U);
    EXPECT_EQ(work.transfers.takes.size(), 6U);
    for (const Transfer& take : work.transfers.takes) EXPECT_EQ(take.rows, work.pieces.at(take.to / 2).rows);
  }
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
        const Dims there = *mesh.coordinate_of(rank);
        for (const Transfer& take : takes_of(from, {rank, 0, grid_of(target, there)}, taker_at(target, there).turn)) {
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
