// Any layout to any layout: placements, meshes, boxes, several tensors at once, in the background.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "property/distribute_any.h"
#include "property/random_layout.h"
#include "sherd/collectives.h"
#include "sherd/explain.h"
#include "sherd/local_shards.h"
#include "sherd/redistribute.h"

namespace sherd::testing {
namespace {

using Prefer = RedistributeOptions::Prefer;

// Whether this rank's part of `moved` is what its layout says it is of `whole`.
bool is_right(const at::Tensor& moved, const at::Tensor& whole) {
  const DeviceMesh mesh = mesh_of(moved);
  if (!mesh.coordinate()) return to_local(moved).numel() == 0;
  const at::Tensor local = to_local(moved);
  at::Tensor expected = whole;
  const Layout layout = layout_of(moved);
  for (int64_t d = 0; d < whole.dim(); ++d) {
    std::vector<at::Tensor> rows;
    for (const Run& run : local_runs(layout, d, *mesh.coordinate())) {
      rows.push_back(expected.narrow(d, run.offset, run.size));
    }
    expected = rows.empty() ? expected.narrow(d, 0, 0) : torch::cat(rows, d);
  }
  return local.equal(expected);
}

at::Tensor numbered(const Dims& shape) {
  return torch::arange(static_cast<double>(numel(shape)), torch::kDouble).view(shape);
}

// Placements with Partials that doubles can have, or none.
Placements world_placements(RandomLayout& random, const Mesh& mesh, const Dims& shape, bool partials) {
  Placements placements = random.placements(mesh, shape);
  for (Placement& p : placements) {
    if (!is_partial(p)) continue;
    const ReduceOp op = std::get<Partial>(p).op;
    const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
    p = partials ? Placement(Partial(bitwise ? ReduceOp::max : op)) : Placement(Replicate());
  }
  return placements;
}

// A layout with at most `ranks` ranks that are those of a world, with such placements.
Layout world_layout(RandomLayout& random, int64_t ranks, const Dims& shape, bool partials) {
  Mesh mesh = random.mesh(ranks);
  if (!mesh.has_default_ranks()) {
    std::vector<int64_t> all(static_cast<size_t>(ranks));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    std::shuffle(all.begin(), all.end(), random.random());
    all.resize(static_cast<size_t>(mesh.size()));
    mesh = Mesh(mesh.axes(), all);
  }
  return {mesh, shape, world_placements(random, mesh, shape, partials)};
}

// Numbers of any type; doubles where Partials of every kind are to come to them.
at::Tensor any_numbers(RandomLayout& random, const Layout& layout, const std::vector<c10::ScalarType>& types) {
  const c10::ScalarType type = types[static_cast<size_t>(random.number(0, static_cast<int64_t>(types.size()) - 1))];
  const auto& placements = layout.placements;
  const bool sums = std::any_of(placements.begin(), placements.end(), [](const Placement& p) { return is_partial(p); });
  const at::Tensor whole = numbered(layout.shape);
  if (sums) return whole;
  return c10::isComplexType(type) ? torch::complex(whole, whole + 1).to(type) : whole.to(type);
}

// The same tensor, of which the ranks' parts lie in memory in any way, and the numbers in any form.
at::Tensor lying_anyhow(RandomLayout& random, const at::Tensor& tensor) {
  const at::Tensor local = to_local(tensor);
  at::Tensor lies = local;
  const int64_t how = random.number(0, 3);
  if (how == 1) lies = torch::stack({local, local}, -1).select(-1, 1);
  if (how == 2 && local.dim() > 1) lies = local.transpose(0, 1).contiguous().transpose(0, 1);
  if (how == 3 && local.is_complex()) lies = local.conj().resolve_conj().conj();
  return from_local(lies, mesh_of(tensor), placements_of(tensor), {.shape = tensor.sizes().vec()});
}

TEST(MovingTest, AnyPlacementsToAnyOther) {
  constexpr int kRanks = 6;
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
      RandomLayout random(seed);
      const Dims shape = random.shape();
      const Layout from = world_layout(random, kRanks, shape, true);
      Placements to = random.placements(from.mesh, shape);
      for (Placement& p : to) {
        if (is_partial(p)) p = Replicate();
      }
      const DeviceMesh mesh("cpu", from.mesh);
      const at::Tensor whole = any_numbers(
          random, from, {torch::kDouble, torch::kBFloat16, torch::kLong, torch::kByte, torch::kComplexFloat});
      const at::Tensor x = lying_anyhow(random, distribute_any(whole, mesh, from.placements));
      for (const Prefer prefer : {Prefer::bytes, Prefer::latency}) {
        for (const int64_t staging : {int64_t{1} << 20, int64_t{200}}) {
          if (staging == 200 && seed % 4 != 0) continue;  // many rounds take long
          const at::Tensor y = redistribute(x, to, {.prefer = prefer, .staging_bytes = staging});
          if (is_right(y, whole)) continue;
          wrong[static_cast<size_t>(world.rank())] += "seed " + std::to_string(seed) + ": " + describe(from) + " -> " +
                                                      to_string(to) + ": " +
                                                      redistribution_text(x, to, {.prefer = prefer}) + "\n";
        }
      }
    }
  });
  EXPECT_EQ(wrong[0], "");
  for (const std::string& rank : wrong) EXPECT_TRUE(rank.empty());
}

// The elements that the rank at a coordinate wants and does not have.
int64_t lacked(const Layout& from, const Layout& to, const Dims& coordinate) {
  int64_t wanted = 1;
  int64_t had = 1;
  for (int64_t d = 0; d < static_cast<int64_t>(from.shape.size()); ++d) {
    int64_t rows = 0;
    int64_t common = 0;
    for (const Run& run : local_runs(to, d, coordinate)) {
      rows += run.size;
      for (const Run& mine : local_runs(from, d, coordinate)) {
        const int64_t begin = std::max(run.offset, mine.offset);
        common += std::max<int64_t>(0, std::min(run.offset + run.size, mine.offset + mine.size) - begin);
      }
    }
    wanted *= rows;
    had *= common;
  }
  return wanted - had;
}

// What collectives really move, on three axes: just what ranks lack.
TEST(MovingTest, RanksReceiveWhatTheyLackAndNoMore) {
  constexpr int kRanks = 8;
  constexpr uint64_t kCases = 250;
  const Mesh cube = parse_mesh("[a=2, b=2, c=2]");
  const auto layouts = [&](uint64_t seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    const auto layout = [&] {
      Layout result{cube, shape, random.placements(cube, shape)};
      for (Placement& p : result.placements) {
        if (is_partial(p)) p = Replicate();
      }
      return result;
    };
    Layout from = layout();
    return std::pair{std::move(from), layout()};
  };
  std::vector<std::vector<int64_t>> received(kRanks);
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const DeviceMesh mesh("cpu", cube);
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const auto [from, to] = layouts(seed);
      const at::Tensor whole = numbered(from.shape);
      const at::Tensor x = distribute_any(whole, mesh, from.placements);
      const CommRecorder recorder;
      const at::Tensor y = redistribute(x, to.placements, {.prefer = Prefer::bytes});
      received[rank].push_back(recorder.bytes());
      if (!is_right(y, whole)) wrong[rank] += "seed " + std::to_string(seed) + "; ";
    }
  });
  for (const std::string& rank : wrong) EXPECT_EQ(rank, "");
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const auto [from, to] = layouts(seed);
    int64_t moved = 0;
    int64_t needed = 0;
    for (int64_t i = 0; i < kRanks; ++i) {
      moved += received[static_cast<size_t>(i)][seed];
      needed += lacked(from, to, cube.coordinate_at(i)) * int64_t{sizeof(double)};
    }
    EXPECT_EQ(moved, needed) << "seed " << seed << ": " << describe(from) << " -> " << to_string(to.placements);
  }
}

// Ranks that hold the same parts reduce a share each of what they keep in the end. Of three parts, that moves the
// least.
TEST(MovingTest, RanksThatTakeTurnsReduceWhatTheyHold) {
  spawn(6, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 3}, {"dp", "tp"});
    for (const Dims& shape : {Dims{12}, Dims{7}, Dims{12, 4}, Dims{5, 9}}) {
      const at::Tensor whole = numbered(shape);
      for (int64_t dim = 0; dim < whole.dim(); ++dim) {
        const at::Tensor x = distribute_any(whole, mesh, {Replicate(), Partial()});
        const RedistributeOptions options{.prefer = Prefer::bytes};
        const at::Tensor y = redistribute(x, {Replicate(), Shard(dim)}, options);
        EXPECT_TRUE(is_right(y, whole)) << to_string(shape) << ": "
                                        << redistribution_text(x, {Replicate(), Shard(dim)}, options);
      }
    }
  });
}

TEST(MovingTest, AnyMeshToAnyOther) {
  constexpr int kRanks = 6;
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      RandomLayout random(seed);
      const Dims shape = random.shape();
      const Layout from = world_layout(random, kRanks, shape, true);
      const Layout to = world_layout(random, kRanks, shape, false);
      const at::Tensor whole = any_numbers(random, from, {torch::kDouble, torch::kHalf, torch::kComplexDouble});
      const at::Tensor x =
          lying_anyhow(random, distribute_any(whole, DeviceMesh("cpu", from.mesh), from.placements)).detach();
      x.requires_grad_(true);
      const bool relabel = random.chance(30);
      const at::Tensor y =
          redistribute(x, DeviceMesh("cpu", to.mesh), to.placements, {.staging_bytes = 500, .relabel = relabel});
      bool right = is_right(y.detach(), whole) && placements_of(y) == to.placements;
      // The gradient comes back to where the tensor was.
      y.backward(distribute_any(whole * 3, mesh_of(y), to.placements));
      Placements back = placements_of(x);
      for (Placement& p : back) {
        if (is_partial(p)) p = Replicate();
      }
      right &= placements_of(x.grad()) == back && is_right(x.grad(), whole * 3);
      if (!right) {
        wrong[static_cast<size_t>(world.rank())] +=
            "seed " + std::to_string(seed) + ": " + describe(from) + " -> " + describe(to) + "\n";
      }
    }
  });
  EXPECT_EQ(wrong[0], "");
  for (const std::string& rank : wrong) EXPECT_TRUE(rank.empty());
}

// At once, in the background, and as tensors that arrive when they are used.
TEST(MovingTest, SeveralFromAnyMeshToAnyOther) {
  constexpr int kRanks = 6;
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      RandomLayout random(seed);
      const Mesh before = world_layout(random, kRanks, {1}, false).mesh;
      const Mesh after = world_layout(random, kRanks, {1}, false).mesh;
      const DeviceMesh from("cpu", before), to("cpu", after);
      std::vector<at::Tensor> wholes, tensors;
      std::vector<Placements> wanted;
      for (int i = 0; i < 4; ++i) {
        const Dims shape = random.shape();
        const bool narrow = i == 2;  // of another dtype than the others
        wholes.push_back(narrow ? numbered(shape).to(torch::kFloat) : numbered(shape));
        tensors.push_back(distribute_any(wholes.back(), from, world_placements(random, before, shape, !narrow)));
        tensors.back().requires_grad_(true);
        wanted.push_back(world_placements(random, after, shape, false));
      }
      const RedistributeOptions options{.staging_bytes = 4000, .relabel = random.chance(30)};
      RedistributeOptions later = options;
      later.async = true;
      PendingTensors pending = redistribute_async(tensors, to, wanted, options);
      const auto arriving = redistribute(tensors, to, wanted, later);
      const auto together = redistribute(tensors, to, wanted, options);  // while both are under way
      const auto fetched = pending.wait();
      for (size_t i = 0; i < tensors.size(); ++i) {
        bool right = true;
        for (const at::Tensor& y : {fetched[i], arriving[i], together[i]}) {
          right &= is_right(y.detach(), wholes[i]) && placements_of(y) == wanted[i];
          tensors[i].mutable_grad() = at::Tensor();
          y.backward(distribute_any(wholes[i] * 3, mesh_of(y), wanted[i]));
          right &= is_right(tensors[i].grad(), wholes[i] * 3);
        }
        if (right) continue;
        wrong[static_cast<size_t>(world.rank())] +=
            fmt::format("seed {}: tensor {}: {} -> {} on {}\n", seed, i, to_string(tensors[i]), to_string(wanted[i]),
                        to_string(after));
      }
    }
  });
  EXPECT_EQ(wrong[0], "");
  for (const std::string& rank : wrong) EXPECT_TRUE(rank.empty());
}

// Lists on one mesh: over every transport, with types on the way that are wide enough, in many rounds or one.
TEST(MovingTest, SeveralFromAnyPlacementsToAnyOther) {
  constexpr int kRanks = 6;
  const std::vector<std::pair<const char*, uint64_t>> transports = {{"threads", 80}, {"shm", 40}, {"gloo", 30}};
  for (const auto& [backend, cases] : transports) {
    std::vector<std::string> wrong(kRanks);
    spawn(kRanks,
          [&, cases = cases](World& world) {
            for (uint64_t seed = 0; seed < cases; ++seed) {
              RandomLayout random(seed);
              const Mesh value = world_layout(random, kRanks, {1}, false).mesh;
              const DeviceMesh mesh("cpu", value);
              std::vector<at::Tensor> wholes, tensors;
              std::vector<Placements> wanted;
              for (int i = 0; i < 5; ++i) {
                const Dims shape = random.shape();
                const bool narrow = i % 2 == 1;  // numbers that a float holds, and no products of them
                wholes.push_back(narrow ? numbered(shape).to(torch::kFloat) : numbered(shape));
                Placements from = world_placements(random, value, shape, true);
                for (Placement& p : from) {
                  if (narrow && is_partial(p)) p = Partial();
                }
                tensors.push_back(lying_anyhow(random, distribute_any(wholes.back(), mesh, from)));
                wanted.push_back(world_placements(random, value, shape, false));
              }
              RedistributeOptions options{.prefer = random.chance(50) ? Prefer::bytes : Prefer::latency,
                                          .staging_bytes = random.chance(30) ? 300 : 1 << 20};
              if (random.chance(40)) options.reduce_dtype = torch::kDouble;
              if (random.chance(40)) options.move_dtype = torch::kDouble;
              RedistributeOptions later = options;
              later.async = true;
              PendingTensors pending = redistribute_async(tensors, wanted, options);
              const auto arriving = redistribute(tensors, wanted, later);
              const auto together = redistribute(tensors, wanted, options);
              const auto fetched = pending.wait();
              for (size_t i = 0; i < tensors.size(); ++i) {
                bool right = true;
                for (const at::Tensor& y : {fetched[i], arriving[i], together[i]}) {
                  right = right && placements_of(y) == wanted[i] && y.scalar_type() == tensors[i].scalar_type() &&
                          is_right(y, wholes[i]);
                }
                if (right) continue;
                wrong[static_cast<size_t>(world.rank())] +=
                    fmt::format("{}, seed {}, tensor {}: {} -> {}\n", backend, seed, i, to_string(tensors[i]),
                                to_string(wanted[i]));
              }
            }
          },
          {.backend = backend, .timeout = std::chrono::seconds(60)});
    for (const std::string& rank : wrong) EXPECT_EQ(rank, "");
  }
}

TEST(MovingTest, SeveralToAnotherMeshShareTheirMessages) {
  spawn(4, [](World&) {
    const DeviceMesh from("cpu", parse_mesh("[2]{0, 1}")), to("cpu", parse_mesh("[2]{2, 3}"));
    std::vector<at::Tensor> tensors;
    std::vector<Placements> wanted;
    for (int64_t i = 0; i < 30; ++i) {
      const std::vector<Placements> lists = {{Shard(0)}, {Shard(1)}, {Partial()}, {Replicate()}};
      tensors.push_back(distribute_any(numbered({4 + i, 6}), from, lists[static_cast<size_t>(i % 3)]));
      wanted.push_back(lists[i % 5 == 0 ? 3 : 0]);
    }
    const CommRecorder recorder;
    const auto moved = redistribute(tensors, to, wanted, {.prefer = Prefer::bytes});
    // One for those that only move, one for those that are reduced, one for what was reduced by shares.
    EXPECT_LE(std::ranges::count(recorder.calls(), "all_to_all", &CollectiveCall::name), 3);
    for (int64_t i = 0; i < 30; ++i) EXPECT_TRUE(is_right(moved[static_cast<size_t>(i)], numbered({4 + i, 6}))) << i;
  });
}

TEST(MovingTest, BetweenMeshesRanksReceiveWhatTheyLack) {
  spawn(4, [](World& world) {
    const DeviceMesh all = init_device_mesh("cpu", {4});
    const DeviceMesh some("cpu", parse_mesh("[2]{0, 1}"));
    const at::Tensor x = distribute_tensor(numbered({8, 8}), all, {Shard(0)}, {.source = std::nullopt});
    const CommRecorder recorder;
    redistribute(x, some, {Shard(0)});
    // Rank 0 has rows 0 and 1 of the four that it gets, rank 1 none of its own.
    int64_t moved = 0;
    for (const CollectiveCall& call : recorder.calls()) moved += call.name == "all_to_all" ? call.bytes : 0;
    EXPECT_EQ(moved, (world.rank() == 0 ? 2 : world.rank() == 1 ? 4 : 0) * 64);
  });
}

// Of a tensor on four ranks, the parts of each element that its reducer has not, and the results that others want.
TEST(MovingTest, PartialsAreReducedWhereTheyGo) {
  struct Case {
    const char* from;
    const char* to;
    Placements placements;
    std::vector<double> tensors;  // received by each rank
    const char* text;
  };
  const std::vector<Case> cases = {
      // To some of the ranks: three parts of each half.
      {"[4]", "[2]{0, 1}", {Shard(0)}, {1.5, 1.5, 0, 0}, "reduce to [2] 48.0 KiB"},
      // The same ranks in another shape: those that want the same share the work.
      {"[4]", "[2, 2]", {Shard(1), Replicate()}, {1, 1, 1, 1}, "reduce to [2, 2] 24.0 KiB, exchange@1 8.0 KiB"},
      // To others.
      {"[2]{0, 1}", "[2]{2, 3}", {Shard(0)}, {0, 0, 1, 1}, "reduce to [2]{2-3} 32.0 KiB"},
      // To more of them: those that have a part reduce what all want.
      {"[2]{0, 1}", "[4]", {Shard(1)}, {.25, .25, .5, .5}, "reduce to [4] 12.0 KiB"},
      {"[2]{0, 1}", "[4]", {Replicate()}, {1, 1, 1, 1}, "reduce to [4] 8.0 KiB, exchange@0 24.0 KiB"},
  };
  const at::Tensor whole = numbered({64, 64});
  spawn(4, [&](World& world) {
    for (const Case& c : cases) {
      const DeviceMesh from("cpu", parse_mesh(c.from));
      const DeviceMesh to("cpu", parse_mesh(c.to));
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
        const at::Tensor x = distribute_any(whole, from, {Partial(op)});
        const RedistributeOptions options{.prefer = Prefer::bytes};
        const CommRecorder recorder;
        const at::Tensor y = redistribute(x, to, c.placements, options);
        EXPECT_TRUE(is_right(y, whole)) << c.text << " " << to_string(op);
        int64_t moved = 0;
        for (const CollectiveCall& call : recorder.calls()) moved += call.name == "all_to_all" ? call.bytes : 0;
        EXPECT_EQ(static_cast<double>(moved) / (64 * 64 * 8), c.tensors[static_cast<size_t>(world.rank())]) << c.text;
        EXPECT_EQ(redistribution_text(x, to, c.placements, options), c.text);
      }
    }
  });
}

// Types that parts are reduced in, and in which their results travel.
TEST(MovingTest, PartialsOfOtherTypesCross) {
  spawn(3, [](World& world) {
    const DeviceMesh from("cpu", parse_mesh("[2]{0, 2}"));
    const DeviceMesh to("cpu", parse_mesh("[3]"));
    const auto sent = [&](const at::Tensor& part, ReduceOp op, const RedistributeOptions& options = {}) {
      return to_local(redistribute(from_local(part, from, {Partial(op)}, {.shape = part.sizes().vec()}), to,
                                   {Replicate()}, options));
    };
    const at::Tensor number = torch::full({}, world.rank(), torch::kLong);
    EXPECT_EQ(sent(number, ReduceOp::sum).item<int64_t>(), 2);
    EXPECT_TRUE(sent(number > 0, ReduceOp::max).item<bool>());
    const at::Tensor complex = torch::full({3}, c10::complex<double>(1, world.rank())).conj();
    EXPECT_EQ(sent(complex, ReduceOp::sum)[2].item<c10::complex<double>>(), c10::complex<double>(2, -2));
    const at::Tensor fine = torch::full({4}, world.rank() == 0 ? 1.0 : 1.0 / 1024);
    const RedistributeOptions narrow{.prefer = Prefer::bytes, .move_dtype = torch::kBFloat16};
    EXPECT_EQ(sent(fine, ReduceOp::sum, narrow)[0].item<float>(), 1.F);
    EXPECT_EQ(sent(fine, ReduceOp::sum)[0].item<float>(), 1.F + 1.F / 1024);
    const at::Tensor large = torch::full({4}, 200, torch::kHalf) * 200;
    EXPECT_EQ(sent(large, ReduceOp::avg, {.reduce_dtype = torch::kFloat})[0].item<float>(), large[0].item<float>());
    EXPECT_THROW(sent(number, ReduceOp::avg), c10::ValueError);
  });
}

TEST(MovingTest, PlansToAnotherMeshCountTheBytesThatTravel) {
  const WorldScope world(fake_world(0, 4));
  const DeviceMesh from("cpu", parse_mesh("[2]{0, 1}")), to("cpu", parse_mesh("[4]"));
  const at::Tensor rows = from_local(torch::zeros({32, 64}), from, {Shard(0)}, {.shape = Dims{64, 64}});
  const at::Tensor part = from_local(torch::zeros({64, 64}), from, {Partial()}, {.shape = Dims{64, 64}});
  const auto text = [&](const at::Tensor& x, std::optional<c10::ScalarType> dtype) {
    return redistribution_text(x, to, {Replicate()}, {.prefer = Prefer::bytes, .move_dtype = dtype});
  };
  EXPECT_EQ(text(rows, {}), "exchange to [4] 12.0 KiB");
  EXPECT_EQ(text(rows, torch::kHalf), "exchange to [4] 6.0 KiB");
  EXPECT_EQ(text(part, {}), "reduce to [4] 4.0 KiB, exchange@0 12.0 KiB");
  EXPECT_EQ(text(part, torch::kHalf), "reduce to [4] 4.0 KiB, exchange@0 6.0 KiB");
}

// `sherd explain`, which has no tensors, says what the library does.
TEST(MovingTest, ThePlanHasOneText) {
  const WorldScope world(fake_world(0, 12));
  const std::pair<Prefer, PlanPreferences::Prefer> preferences[] = {
      {Prefer::automatic, PlanPreferences::Prefer::automatic},
      {Prefer::bytes, PlanPreferences::Prefer::bytes},
      {Prefer::latency, PlanPreferences::Prefer::latency},
  };
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomLayout random(seed);
    const Dims shape = random.shape();
    const Layout from = world_layout(random, 12, shape, true);
    Layout to{from.mesh, shape, random.placements(from.mesh, shape)};
    if (random.chance(50)) to = world_layout(random, 12, shape, false);
    for (Placement& p : to.placements) {
      if (is_partial(p)) p = Replicate();
    }
    const DeviceMesh mesh("cpu", from.mesh);
    const DeviceMesh to_mesh("cpu", to.mesh);
    if (!mesh.coordinate()) continue;
    const Dims local = local_shape(from, *mesh.coordinate());
    const at::Tensor x = from_local(torch::zeros(local), mesh, from.placements, {.shape = shape});
    for (const auto& [prefer, same] : preferences) {
      const TensorText before{"f32", shape, from.placements};
      const TensorText after{"f32", shape, to.placements};
      EXPECT_EQ(redistribution_text(x, to_mesh, to.placements, {.prefer = prefer}),
                explain_redistribution(before, from.mesh, after, to.mesh, {.prefer = same}))
          << "seed " << seed << ": " << describe(from) << " -> " << describe(to);
    }
  }
}

// Costs that are set later hold for what was planned before.
TEST(MovingTest, PlansGoByTheCostsThatHoldNow) {
  const WorldScope world(fake_world(0, 8));
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 4}, {"dp", "tp"});
  const at::Tensor x = from_local(torch::zeros({64, 64}), mesh, {Replicate(), Partial()}, {.shape = Dims{64, 64}});
  const auto text = [&] { return redistribution_text(x, {Replicate(), Replicate()}); };
  set_costs({.call = 0, .message = 1});
  const std::string few_messages = text();
  set_costs({.call = 0, .message = 0, .byte = 1});
  EXPECT_NE(text(), few_messages);
  set_costs({});
}

TEST(MovingTest, RelabelledMeshesAreOfTheTensorsWorld) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DeviceMesh turned("cpu", parse_mesh("[2]{1, 0}"));
    const at::Tensor x = distribute_tensor(numbered({4}), mesh, {Shard(0)}, {.source = std::nullopt});
    const WorldScope other(fake_world(1, 8));
    const at::Tensor y = redistribute(x, turned, {Shard(0)}, {.relabel = true});
    EXPECT_TRUE(mesh_of(y).world() == world);
    EXPECT_TRUE(to_local(y).equal(to_local(x)));
  });
}

TEST(MovingTest, RelabelMovesNothingWhereRanksHaveWhatAPlaceWants) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    const DeviceMesh turned("cpu", parse_mesh("[4]{3, 2, 1, 0}"));
    const at::Tensor x = distribute_tensor(numbered({8, 2}), mesh, {Shard(0)}, {.source = std::nullopt});
    const at::Tensor y = redistribute(x, turned, {Shard(0)}, {.relabel = true});
    EXPECT_EQ(mesh_of(y).mesh().ranks(), (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_TRUE(to_local(y).equal(to_local(x)));
    const at::Tensor z = redistribute(x, turned, {Shard(0)});
    EXPECT_EQ(to_local(z)[0][0].item<double>(), (3 - world.rank()) * 4);
  });
}

TEST(MovingTest, BoxesOfATensorAndBack) {
  spawn(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = numbered({7, 5});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(1)}, {.source = std::nullopt});
    std::vector<Box> wanted = {parse_box("[0:7, 0:5]"), parse_box("[2:4, 1:5]"), parse_box("[3:3, 0:5]")};
    if (world.rank() == 1) wanted.resize(1);
    if (world.rank() == 2) wanted.clear();
    const auto boxes = read_boxes(x, wanted);
    ASSERT_EQ(boxes.size(), wanted.size());
    for (size_t i = 0; i < boxes.size(); ++i) {
      EXPECT_TRUE(boxes[i].equal(
          whole.narrow(0, wanted[i].offset[0], wanted[i].size[0]).narrow(1, wanted[i].offset[1], wanted[i].size[1])));
    }
    // Rank 0 has the left part in two boxes, rank 2 the right one, rank 1 none.
    std::vector<BoxTensor> held;
    const auto add = [&](const char* text) {
      const Box box = parse_box(text);
      held.push_back({box, whole.narrow(0, box.offset[0], box.size[0]).narrow(1, box.offset[1], box.size[1])});
    };
    if (world.rank() == 0) {
      add("[0:3, 0:2]");
      add("[3:7, 0:2]");
    }
    if (world.rank() == 2) add("[0:7, 2:5]");
    for (const Placements& to : {Placements{Shard(0)}, Placements{Replicate()}, Placements{StridedShard(0, 2)}}) {
      EXPECT_TRUE(is_right(from_boxes(held, {7, 5}, mesh, to, torch::kDouble), whole));
    }
  });
}

TEST(MovingTest, SeveralTensorsShareMessages) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    std::vector<at::Tensor> tensors;
    std::vector<Placements> to;
    for (int64_t i = 0; i < 10; ++i) {
      tensors.push_back(distribute_any(numbered({3 + i, 4}), mesh, {Shard(0), Replicate()}).detach());
      to.push_back({Shard(1), Replicate()});
    }
    for (int64_t i = 0; i < 5; ++i) {
      tensors.push_back(distribute_any(numbered({4, 2 + i}), mesh, {Replicate(), Partial()}).detach());
      to.push_back({Replicate(), Replicate()});
    }
    tensors.push_back(distribute_any(numbered({4, 4}).to(torch::kFloat), mesh, {Shard(0), Replicate()}).detach());
    to.push_back({Replicate(), Replicate()});
    for (at::Tensor& tensor : tensors) tensor.requires_grad_(true);
    const CommRecorder recorder;
    const auto moved = redistribute(tensors, to);
    EXPECT_EQ(recorder.calls().size(), 3U) << recorder.to_string();
    at::Tensor total = torch::zeros({}, torch::kDouble);
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(is_right(moved[i].detach(), numbered(tensors[i].sizes().vec()).to(tensors[i].scalar_type())));
      EXPECT_EQ(placements_of(moved[i]), to[i]);
      const at::Tensor loss = full_tensor((moved[i] * 2).sum());
      loss.backward();
      EXPECT_TRUE(full_tensor(tensors[i].grad()).equal(torch::full_like(full_tensor(tensors[i].detach()), 2)));
    }
  });
}

TEST(MovingTest, MovesWhileTheRankComputes) {
  spawn(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = numbered({30, 7});
    at::Tensor x = distribute_any(whole, mesh, {Shard(0)}).detach();
    x.requires_grad_(true);
    const CommRecorder recorder;
    PendingTensor first = redistribute_async(x, {Shard(1)});
    PendingTensor second = redistribute_async(x, {Replicate()});
    // Meanwhile the rank communicates over the same axis.
    EXPECT_EQ(full_tensor((x * 2).sum()).item<double>(), 2 * whole.sum().item<double>());
    const size_t mine = recorder.calls().size();
    const at::Tensor y = first.wait();
    const at::Tensor z = second.wait();
    EXPECT_EQ(recorder.calls().size(), mine + 2);
    EXPECT_TRUE(is_right(y.detach(), whole));
    EXPECT_TRUE(is_right(z.detach(), whole));
    EXPECT_TRUE(first.wait().is_same(y));
    full_tensor((y * 3).sum()).backward();
    EXPECT_TRUE(full_tensor(x.grad()).equal(torch::full_like(whole, 3)));
  });
}

// A rank goes on before the others have come to the call.
TEST(MovingTest, AnAsynchronousMoveWaitsForNobody) {
  std::atomic<bool> returned = false;
  spawn(2, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor whole = numbered({6, 4});
    const at::Tensor x = distribute_any(whole, mesh, {Shard(0)}).detach();
    if (world.rank() == 1) {
      for (int i = 0; i < 1000 && !returned; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(returned);
    }
    const at::Tensor y = redistribute(x, {Shard(1)}, {.async = true});
    if (world.rank() == 0) returned = true;
    EXPECT_TRUE(is_right(y, whole));
  });
}

// Counts the CPU memory of tensors that this thread makes.
class MemoryMeter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0;
  int64_t peak = 0;
};

// What it takes at the most while something is made.
int64_t peak_of(const std::function<void()>& make) {
  const auto meter = std::make_shared<MemoryMeter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  make();
  return meter->peak;
}

constexpr int64_t kSmallThings = 512 << 10;  // what transports need among them

TEST(MovingTest, MemoryBesideInputAndOutputIsBounded) {
  constexpr int64_t kStaging = 1 << 20;
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const int64_t bytes = 1024 * 4096 * 4;
    const auto peak = [&](const Placements& from, const Placements& to) {
      const at::Tensor x = distribute_any(torch::ones({1024, 4096}), mesh, from);
      return peak_of([&] { const at::Tensor y = redistribute(x, to, {.staging_bytes = kStaging}); });
    };
    const Placement r = Replicate();
    // Shards to shards: the output, and what is under way.
    EXPECT_LE(peak({Shard(0), Shard(1)}, {Shard(1), Shard(0)}), bytes / 4 + kStaging + kSmallThings);
    EXPECT_LE(peak({Shard(0), r}, {Shard(1), r}), bytes / 2 + kStaging + kSmallThings);
    EXPECT_LE(peak({StridedShard(0, 2), Shard(0)}, {r, Shard(1)}), bytes / 2 + kStaging + kSmallThings);
    EXPECT_LE(peak({Shard(1), Shard(1)}, {r, r}), bytes + kStaging + kSmallThings);
    EXPECT_LE(peak({Partial(), r}, {Shard(0), r}), bytes / 2 + kStaging + kSmallThings);
    // Two steps: what lies between them, too.
    EXPECT_LE(peak({Partial(), Shard(0)}, {Shard(0), Shard(0)}), bytes / 2 + bytes / 4 + kStaging + kSmallThings);
  });
}

// A rank that receives reads where the others' tensors lie: nothing is laid down for it, and nothing done in rounds.
TEST(MovingTest, BetweenThreadsNothingLiesBesideInputAndOutput) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Placement r = Replicate();
    const std::vector<std::pair<Placements, Placements>> moves = {{{Shard(0), Shard(1)}, {Shard(1), Shard(0)}},
                                                                  {{Shard(0), r}, {r, r}},
                                                                  {{Shard(1), Shard(1)}, {r, r}},
                                                                  {{StridedShard(0, 2), Shard(0)}, {r, Shard(1)}},
                                                                  {{Partial(), Partial()}, {r, r}}};
    for (const auto& [from, to] : moves) {
      const at::Tensor x = distribute_any(torch::ones({1024, 1024}), mesh, from);
      at::Tensor y;
      const CommRecorder recorder;
      const int64_t peak = peak_of([&] { y = redistribute(x, to, {.prefer = Prefer::bytes, .staging_bytes = 1024}); });
      EXPECT_LE(peak, static_cast<int64_t>(to_local(y).nbytes()) + 4096) << to_string(from) << " to " << to_string(to);
      EXPECT_EQ(recorder.calls().size(), 1U) << recorder.to_string();
    }
  });
}

// What is converted is converted in rounds, not as a whole.
TEST(MovingTest, TypesOnTheWayKeepToTheStagingBuffer) {
  constexpr int64_t kStaging = 1 << 20;
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}), turned("cpu", parse_mesh("[4]{3, 1, 0, 2}"));
    const DeviceMesh two("cpu", parse_mesh("[2]{3, 1}"));
    const at::Tensor whole = torch::ones({1024, 4096}, torch::kBFloat16);
    const int64_t bytes = whole.numel() * 2;
    const auto expect = [&](const DeviceMesh& to, const Placement& from, const Placement& wanted, int64_t output,
                            RedistributeOptions options) {
      options.staging_bytes = kStaging;
      const at::Tensor x = from_local(is_partial(from) ? whole : whole.narrow(0, 256 * world.rank(), 256), mesh, {from},
                                      {.shape = Dims{1024, 4096}});
      at::Tensor y;
      EXPECT_LE(peak_of([&] { y = redistribute(x, to, {wanted}, options); }), output + kStaging + kSmallThings)
          << to_string(from) << " to " << to_string(wanted) << " on " << to_string(to.mesh());
      const double right = is_partial(from) ? 4 : 1;
      EXPECT_TRUE(to_local(y).eq(right).all().item<bool>());
    };
    const RedistributeOptions wide{.prefer = Prefer::bytes, .reduce_dtype = torch::kFloat};
    const RedistributeOptions wider{.prefer = Prefer::bytes, .reduce_dtype = torch::kDouble};
    const RedistributeOptions moved{.prefer = Prefer::bytes, .move_dtype = torch::kDouble};
    for (const auto& options : {wide, wider}) {
      expect(mesh, Partial(), Shard(0), bytes / 4, options);
      expect(mesh, Partial(), Shard(1), bytes / 4, options);
      expect(turned, Partial(), Shard(0), bytes / 4, options);
      expect(two, Partial(), Shard(0), world.rank() % 2 == 1 ? bytes / 2 : 0, options);
    }
    expect(mesh, Shard(0), Shard(1), bytes / 4, moved);
    expect(mesh, Shard(0), Replicate(), bytes, moved);
    expect(turned, Shard(0), Shard(1), bytes / 4, moved);
    // Where the results would travel as wide it is one all_reduce.
    expect(mesh, Partial(), Replicate(), bytes, {.reduce_dtype = torch::kFloat, .move_dtype = torch::kFloat});
    // What was reduced by shares lies beside it.
    expect(mesh, Partial(), Replicate(), bytes + bytes / 4, wide);
    expect(turned, Partial(), Replicate(), bytes + bytes / 4, wide);
    const at::Tensor x = from_local(whole, mesh, {Partial()});
    const std::vector<Box> boxes = {parse_box("[0:512, 0:4096]")};
    std::vector<at::Tensor> read;
    EXPECT_LE(peak_of([&] { read = read_boxes(x, boxes, {.staging_bytes = kStaging}); }),
              bytes / 2 + kStaging + kSmallThings);
    EXPECT_TRUE(read[0].eq(4).all().item<bool>());
  });
}

// Over Gloo everything is packed, in as many rounds as keep it within the buffer: also where one rank gives the whole
// to all others, and where values are converted on the way. (Gloo's threads free some of it, so memory itself is not
// counted.)
TEST(MovingTest, PackingKeepsToTheStagingBuffer) {
  static constexpr int64_t kStaging = 1 << 20;
  static constexpr int64_t kWhole = 4 << 20;
  static constexpr int kRanks = 6;
  spawn(kRanks,
        [](World&) {
          const DeviceMesh one("cpu", parse_mesh("[1]{0}")), all = init_device_mesh("cpu", {kRanks});
          const at::Tensor whole = torch::rand({1024, 1024});
          const auto exchanges = [](const std::function<void()>& move) {
            const CommRecorder recorder;
            move();
            std::vector<int64_t> received;
            for (const CollectiveCall& call : recorder.calls()) {
              if (call.name == "all_to_all") received.push_back(call.bytes);
            }
            return received;
          };
          RedistributeOptions options{.staging_bytes = kStaging};
          const at::Tensor x = distribute_any(whole, one, {Replicate()});
          // What rank 0 sends, and what the others receive.
          const auto given = exchanges([&] { redistribute(x, all, {Replicate()}, options); });
          EXPECT_GE(static_cast<int64_t>(given.size()), (kRanks + 1) * kWhole / kStaging);
          const at::Tensor rows = distribute_any(whole, all, {Shard(0)});
          const auto wide = exchanges([&] { redistribute(rows, {Shard(1)}, options); });
          // One rank has all that the others want.
          const at::Tensor ragged = distribute_any(whole, all, {Ragged(1, {0, 0, 0, 0, 1024, 1024, 1024})});
          const auto from_one = exchanges([&] { redistribute(ragged, {Shard(0)}, options); });
          EXPECT_GE(static_cast<int64_t>(from_one.size()), kWhole / kStaging);
          const DeviceMesh grid = init_device_mesh("cpu", {2, 3});
          const at::Tensor halves = distribute_any(whole, grid, {Shard(0), Ragged(1, {0, 0, 0, 1024})});
          const auto to_many = exchanges([&] { redistribute(halves, {Shard(1), Replicate()}, options); });
          EXPECT_GE(static_cast<int64_t>(to_many.size()), (3 * kWhole / 2 + kWhole / 2) / kStaging);
          options.move_dtype = torch::kHalf;
          const auto narrow = exchanges([&] { redistribute(rows, {Shard(1)}, options); });
          EXPECT_EQ(2 * std::accumulate(narrow.begin(), narrow.end(), int64_t{0}),
                    std::accumulate(wide.begin(), wide.end(), int64_t{0}));
          // A box of sums: its parts, and not those of the rest.
          const at::Tensor part = from_local(whole, all, {Partial()});
          const auto box = exchanges([&] { read_boxes(part, {parse_box("[3:5, 0:8]")}); });
          EXPECT_EQ(std::accumulate(box.begin(), box.end(), int64_t{0}), (kRanks - 1) * 2 * 8 * 4);
        },
        {.backend = "gloo"});
}

TEST(MovingTest, ManySmallTensorsKeepToTheStagingBuffer) {
  static constexpr int64_t kStaging = 8 << 10;
  spawn(3,
        [](World&) {
          const DeviceMesh mesh = init_device_mesh("cpu", {3});
          std::vector<at::Tensor> tensors;
          for (int i = 0; i < 200; ++i) tensors.push_back(distribute_any(numbered({12, 6}), mesh, {Shard(0)}));
          const CommRecorder recorder;
          const auto moved =
              redistribute(tensors, std::vector<Placements>(200, {Shard(1)}), {.staging_bytes = kStaging});
          for (const CollectiveCall& call : recorder.calls()) EXPECT_LE(call.bytes, kStaging);
          for (const at::Tensor& tensor : moved) EXPECT_TRUE(is_right(tensor, numbered({12, 6})));
        },
        {.backend = "gloo"});
}

// Bytes that lie in memory are not always the values.
TEST(MovingTest, BoxesOfConjugates) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    spawn(2,
          [](World& world) {
            const DeviceMesh mesh = init_device_mesh("cpu", {2});
            const at::Tensor whole = torch::complex(numbered({128, 128}), numbered({128, 128}) + 1);
            const at::Tensor right = whole.conj().resolve_conj();
            const int64_t first = 64 * world.rank();
            const at::Tensor lazy = whole.narrow(0, first, 64).conj();
            for (const int64_t dim : {0, 1}) {
              const at::Tensor y = from_boxes({{Box{{first, 0}, {64, 128}}, lazy}}, {128, 128}, mesh, {Shard(dim)},
                                              torch::kComplexDouble);
              EXPECT_TRUE(to_local(y).equal(right.narrow(dim, first, 64)));
            }
            const at::Tensor x = from_local(lazy, mesh, {Shard(0)}, {.shape = Dims{128, 128}});
            EXPECT_TRUE(read_boxes(x, {parse_box("[0:128, 0:128]")})[0].equal(right));
          },
          {.backend = backend});
  }
}

// Each rank reduces what it asks for, and receives the parts that it has not.
TEST(MovingTest, BoxesOfPartials) {
  constexpr int kRanks = 6;
  std::vector<std::string> wrong(kRanks);
  spawn(kRanks, [&](World& world) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      RandomLayout random(seed);
      const Dims shape = random.shape();
      const Layout layout = world_layout(random, kRanks, shape, true);
      const DeviceMesh mesh("cpu", layout.mesh);
      const at::Tensor whole = numbered(shape);
      const at::Tensor x = distribute_any(whole, mesh, layout.placements);
      if (!mesh.coordinate()) continue;
      std::vector<Box> boxes;
      std::mt19937_64 mine(seed * kRanks + static_cast<uint64_t>(world.rank()));
      for (uint64_t i = mine() % 3; i > 0; --i) {
        Box box;
        for (const int64_t rows : shape) {
          box.offset.push_back(static_cast<int64_t>(mine() % static_cast<uint64_t>(rows + 1)));
          box.size.push_back(static_cast<int64_t>(mine() % static_cast<uint64_t>(rows - box.offset.back() + 1)));
        }
        boxes.push_back(std::move(box));
      }
      const auto read = read_boxes(x, boxes);
      for (size_t i = 0; i < boxes.size(); ++i) {
        at::Tensor expected = whole;
        for (size_t d = 0; d < shape.size(); ++d) {
          expected = expected.narrow(static_cast<int64_t>(d), boxes[i].offset[d], boxes[i].size[d]);
        }
        if (!read[i].equal(expected)) {
          wrong[static_cast<size_t>(world.rank())] +=
              fmt::format("seed {}: {} of {}\n", seed, to_string(boxes[i]), describe(layout));
        }
      }
    }
  });
  for (const std::string& rank : wrong) EXPECT_EQ(rank, "");
}

// What lies at several places comes in pieces, each of which is cut into rounds by itself.
TEST(MovingTest, BoxesOfPartialsInRounds) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    spawn(4,
          [&](World&) {
            const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
            const at::Tensor whole = numbered({64, 24});
            for (const Placements& from : {Placements{Shard(0), Partial()}, Placements{Partial(), StridedShard(0, 4)},
                                           Placements{Ragged(1, {0, 5, 24}), Partial()}}) {
              const at::Tensor x = distribute_any(whole, mesh, from);
              const auto read =
                  read_boxes(x, {parse_box("[0:64, 0:24]"), parse_box("[9:50, 3:20]")}, {.staging_bytes = 2000});
              EXPECT_TRUE(read[0].equal(whole)) << backend << to_string(from);
              EXPECT_TRUE(read[1].equal(whole.narrow(0, 9, 41).narrow(1, 3, 17))) << backend << to_string(from);
            }
          },
          {.backend = backend});
  }
}

// Many boxes with fewer rows than there are rounds do not all go in the first ones.
TEST(MovingTest, SmallBoxesOfPartialsKeepToTheStagingBuffer) {
  static constexpr int64_t kStaging = 2 << 10;
  spawn(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = numbered({64, 64});
    const at::Tensor x = distribute_any(whole, mesh, {Partial()});
    std::vector<Box> boxes;
    for (int64_t i = 0; i < 256; ++i) boxes.push_back(Box{{i / 16 * 4, i % 16 * 4}, {4, 4}});
    const CommRecorder recorder;
    const auto read = read_boxes(x, boxes, {.staging_bytes = kStaging});
    for (const CollectiveCall& call : recorder.calls()) {
      if (call.name == "all_to_all") {
        EXPECT_LE(call.bytes, kStaging);
      }
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      const Dims& at = boxes[i].offset;
      EXPECT_TRUE(read[i].equal(whole.narrow(0, at[0], 4).narrow(1, at[1], 4))) << i;
    }
  });
}

TEST(MovingTest, BoxesBringWhatRanksLack) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    const auto received = [](const auto& move) {
      const CommRecorder recorder;
      move();
      int64_t bytes = 0;
      for (const CollectiveCall& call : recorder.calls()) bytes += call.name == "all_to_all" ? call.bytes : 0;
      return bytes;
    };
    const at::Tensor rows = distribute_any(numbered({8, 8}), mesh, {Shard(0)});
    const at::Tensor part = distribute_any(numbered({8, 8}), mesh, {Partial()});
    const std::vector<Box> boxes = {parse_box("[0:3, 0:8]")};
    // Rank 0 has two of the rows, rank 1 one, the others none; and each has one of four parts.
    const int64_t lacked = world.rank() == 0 ? 1 : world.rank() == 1 ? 2 : 3;
    EXPECT_EQ(received([&] { read_boxes(rows, boxes); }), lacked * 64);
    EXPECT_EQ(received([&] { read_boxes(part, boxes); }), 3 * 3 * 64);
  });
}

// Whoever does not use what is on its way takes part in it all the same.
TEST(MovingTest, MovesThatNobodyWaitsForAreCarriedOut) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor x = distribute_any(torch::ones({64, 64}), mesh, {Shard(0)});
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<PendingTensor> pending;
    for (int i = 0; i < 100; ++i) pending.push_back(redistribute_async(x, {Shard(1)}));
    if (world.rank() == 0) return;
    for (PendingTensor& each : pending) EXPECT_EQ(to_local(each.wait()).sum().item<float>(), 64 * 32);
  });
}

// What is started goes by the costs that hold then, also where it waits for its turn on one rank and not on another.
TEST(MovingTest, MovesThatWaitForTheirTurnGoByTheCostsOfTheirStart) {
  const CommCosts few_calls{.call = 1, .message = 1e-3}, few_messages{.call = 1e-3, .message = 1};
  set_costs(few_calls);
  spawn(5,
        [&](World& world) {
          const DeviceMesh grid("cpu", parse_mesh("[2, 2]")), pair("cpu", parse_mesh("[2]{3, 4}"));
          const at::Tensor whole = numbered({8, 8});
          const at::Tensor x = distribute_any(whole, grid, {Shard(0), Shard(1)});
          const at::Tensor y = distribute_any(whole, pair, {Shard(0)});
          std::vector<PendingTensor> pending;
          // Rank 3 comes to the second only when rank 4 has come to the first.
          if (world.rank() == 3) pending.push_back(redistribute_async(y, {Shard(1)}));
          if (world.rank() < 4) pending.push_back(redistribute_async(x, {Replicate(), Replicate()}));
          barrier(world.group());
          if (world.rank() == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            set_costs(few_messages);
          }
          barrier(world.group());
          if (world.rank() == 4) pending.push_back(redistribute_async(y, {Shard(1)}));
          for (PendingTensor& each : pending) EXPECT_TRUE(is_right(each.wait(), whole));
        },
        {.timeout = std::chrono::seconds(10)});
  set_costs({});
}

TEST(MovingTest, TensorsOnTheirWayKeepNeitherWhatWasGivenNorWhatWasUsed) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}), turned("cpu", parse_mesh("[2]{1, 0}"));
    const at::Tensor whole = numbered({8, 8});
    for (const DeviceMesh& to : {mesh, turned}) {
      at::Tensor x = distribute_any(whole, mesh, {Shard(0)});
      const c10::Storage given = to_local(x).storage();
      auto moved = redistribute(std::vector{x, x}, to, {{Shard(1)}, {Replicate()}}, {.async = true});
      x.reset();
      const c10::Storage first = to_local(moved[0]).storage();
      at::Tensor again = moved[0].detach();
      EXPECT_TRUE(is_right(again, whole));
      EXPECT_GT(first.use_count(), 1U);
      moved[0].reset();
      again.reset();
      EXPECT_EQ(first.use_count(), 1U);
      EXPECT_EQ(given.use_count(), 1U);
      EXPECT_TRUE(is_right(moved[1], whole));
    }
  });
}

TEST(MovingTest, InTheBackgroundOutOfBoxesWithStridesOfTheirOwn) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}), turned("cpu", parse_mesh("[2]{1, 0}"));
    const at::Tensor whole = numbered({4, 6});
    const LocalShardsWrapper local({whole.narrow(0, 2 * world.rank(), 2)}, {{2 * world.rank(), 0}});
    const at::Tensor x = from_local(local, mesh, {Shard(0)}, {.shape = Dims{4, 6}, .stride = Dims{1, 4}});
    for (const DeviceMesh& to : {mesh, turned}) {
      const at::Tensor at_once = redistribute(x, to, {Shard(1)});
      const at::Tensor later = redistribute(x, to, {Shard(1)}, {.async = true});
      EXPECT_EQ(later.strides(), at_once.strides());
      EXPECT_TRUE(is_right(later, whole));
    }
  });
}

// Ranks outside a mesh of a program's own groups do not know that nothing can go beside what these say.
TEST(MovingTest, InTheBackgroundToAMeshOfAProgramsOwnGroups) {
  spawn(4,
        [](World& world) {
          const DeviceMesh all = init_device_mesh("cpu", {4});
          const std::vector<int64_t> members = {0, 1};
          const bool inside = world.rank() < 2;
          const Group group = inside ? Group::from_backend(world.group(members).backend(c10::kCPU), members, c10::kCPU)
                                     : world.group(std::vector<int64_t>{2, 3});
          const DeviceMesh own = DeviceMesh::from_groups({group}, "cpu", parse_mesh("[2]{0, 1}"));
          const at::Tensor whole = numbered({8, 8});
          const at::Tensor x = distribute_any(whole, all, {Shard(0)});
          PendingTensor before = redistribute_async(x, {Shard(1)});
          const at::Tensor there = redistribute_async(x, own, {Shard(1)}).wait();
          EXPECT_TRUE(is_right(there, whole));
          EXPECT_TRUE(is_right(redistribute_async(there, {Shard(0)}).wait(), whole));
          EXPECT_TRUE(is_right(redistribute_async(there, all, {Shard(0)}).wait(), whole));
          EXPECT_TRUE(is_right(before.wait(), whole));
        },
        {.timeout = std::chrono::seconds(20)});
}

TEST(MovingTest, InTheBackgroundWithoutData) {
  const WorldScope world(fake_world(0, 2));
  const DeviceMesh mesh("meta", parse_mesh("[2]"));
  const at::Tensor x = from_local(torch::empty({2, 4}, torch::kMeta), mesh, {Shard(0)}, {.shape = Dims{4, 4}});
  EXPECT_EQ(to_local(redistribute_async(x, {Shard(1)}).wait()).sizes(), (at::IntArrayRef{4, 2}));
  EXPECT_EQ(to_local(redistribute(x, {Replicate()}, {.async = true})).sizes(), (at::IntArrayRef{4, 4}));
}

// The thread of a world remembers plans, which hold the world.
TEST(MovingTest, WorldsThatMovedInTheBackgroundLeaveNoThreads) {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto run = [](bool fails) {
    const auto body = [&](World& world) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2}), turned("cpu", parse_mesh("[2]{1, 0}"));
      const at::Tensor x = distribute_any(numbered({8, 8}), mesh, {Shard(0)});
      redistribute_async(x, {Shard(1)}).wait();
      redistribute_async(x, turned, {Shard(1)}).wait();
      if (fails && world.rank() == 0) throw std::runtime_error("no licence");
    };
    if (fails) {
      EXPECT_THROW(spawn(2, body), std::runtime_error);
    } else {
      spawn(2, body);
    }
  };
  run(false);
  const auto before = threads();
  for (int i = 0; i < 6; ++i) run(i % 3 == 2);
  for (int i = 0; i < 200 && threads() > before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(threads(), before);
}

TEST(MovingTest, TheStepsOfARecorderAreThoseOfThePlan) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const DeviceMesh row("cpu", parse_mesh("[x=4]{3, 1, 0, 2}"));
    const RedistributeOptions options{.prefer = Prefer::bytes};
    const auto steps = [](const auto& move) {
      const CommRecorder recorder;
      move();
      std::string text;
      for (const CollectiveCall& call : recorder.calls()) {
        if (!call.step.empty()) text += (text.empty() ? "" : ", ") + fmt::format("{} {} B", call.step, call.bytes);
      }
      return text;
    };
    const at::Tensor x = distribute_any(torch::ones({8, 8}), mesh, {Partial(), Shard(0)});
    const Placements to = {Replicate(), Shard(0)};
    EXPECT_EQ(steps([&] { redistribute(x, to, options); }), redistribution_text(x, to, options));
    EXPECT_EQ(steps([&] { redistribute(x, row, {Shard(0)}, options); }),
              redistribution_text(x, row, {Shard(0)}, options));
  });
}

// Other numbers are not a matter of precision.
TEST(MovingTest, TypesOnTheWayLeaveIntegersAndImaginaryPartsAlone) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DeviceMesh other("cpu", parse_mesh("[x=2]{1, 0}"));
    const at::Tensor ids = torch::full({4, 4}, 257, torch::kLong);
    const at::Tensor complex = torch::full({4, 4}, c10::complex<float>(1, 2));
    for (const at::Tensor& whole : {ids, complex}) {
      const RedistributeOptions narrow{.reduce_dtype = torch::kFloat, .move_dtype = torch::kBFloat16};
      const at::Tensor x = distribute_any(whole, mesh, {Shard(0)});
      EXPECT_TRUE(full_tensor(redistribute(x, {Shard(1)}, narrow)).equal(whole));
      EXPECT_TRUE(full_tensor(redistribute(x, other, {Shard(1)}, narrow)).equal(whole));
    }
    const at::Tensor sums = from_local(complex, mesh, {Partial()});
    EXPECT_TRUE(full_tensor(redistribute(sums, {Shard(1)}, {.reduce_dtype = torch::kFloat})).equal(complex * 2));
  });
}

TEST(MovingTest, TypesOnTheWay) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    // 1 and 1/256 add up to 1 in bfloat16, not in float32.
    const at::Tensor part = torch::full({8, 8}, world.rank() == 0 ? 1.0 : 1.0 / 256, torch::kBFloat16);
    const at::Tensor x = from_local(part, mesh, {Partial()}, {.shape = Dims{8, 8}});
    const at::Tensor y = redistribute(x, {Shard(0)}, {.reduce_dtype = torch::kFloat});
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(to_local(y)[0][0].item<float>(), static_cast<float>(c10::BFloat16(1 + 3.F / 256)));
    at::Tensor z = distribute_tensor(torch::full({8, 8}, 1 + 1.0 / 1024), mesh, {Shard(0)}, {.source = std::nullopt});
    z.requires_grad_(true);
    const CommRecorder recorder;
    const at::Tensor moved = redistribute(z, {Shard(1)}, {.move_dtype = torch::kBFloat16});
    EXPECT_EQ(moved.scalar_type(), torch::kFloat);
    EXPECT_EQ(to_local(moved.detach())[0][0].item<float>(), 1.F);
    EXPECT_EQ(recorder.bytes(), 8 * 2 * 2 * 3 / 4);
    moved.backward(distribute_tensor(torch::full({8, 8}, 1 + 1.0 / 1024), mesh, {Shard(1)}, {.source = std::nullopt}));
    EXPECT_EQ(full_tensor(z.grad())[0][0].item<float>(), 1.F);
  });
}

// A plan's bytes are those of the types that travel.
TEST(MovingTest, TextsCountTheTypesOnTheWay) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"tp"});
    const auto expect = [&](const at::Tensor& x, const RedistributeOptions& options, const char* step, int64_t bytes) {
      EXPECT_EQ(redistribution_text(x, {Shard(1)}, options), fmt::format("{} {} B", step, bytes));
      const CommRecorder recorder;
      redistribute(x, {Shard(1)}, options);
      EXPECT_EQ(recorder.bytes(), bytes);
    };
    const at::Tensor rows = distribute_tensor(torch::ones({8, 8}), mesh, {Shard(0)}, {.source = std::nullopt});
    expect(rows, {}, "exchange@tp", 48);
    expect(rows, {.move_dtype = torch::kBFloat16}, "exchange@tp", 24);
    expect(rows, {.reduce_dtype = torch::kDouble}, "exchange@tp", 48);
    const at::Tensor part = torch::ones({8, 8}, torch::kBFloat16);
    const at::Tensor parts = from_local(part, mesh, {Partial()}, {.shape = Dims{8, 8}});
    expect(parts, {}, "reduce_scatter@tp", 96);
    expect(parts, {.reduce_dtype = torch::kFloat}, "reduce_scatter@tp", 192);
    expect(parts, {.move_dtype = torch::kFloat}, "reduce_scatter@tp", 96);
  });
}

}  // namespace
}  // namespace sherd::testing
