// Tensors large enough to go from where they lie to where they belong, without being packed: between any two placement
// lists on a mesh, over shared memory without packing and over threads, redistribute keeps the value; so do reshard and
// gather. What such moves take of memory beside input and output, where ranks are processes; and the types on the way.

#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>

#include "conformance/over_processes.h"
#include "property/distribute_any.h"
#include "sherd/collectives.h"
#include "sherd/redistribute.h"
#include "sherd/sharded_tensor.h"

namespace sherd::testing {
namespace {

class RunMovesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(World&)>& rank) {
    spawn(ranks, rank, {.backend = GetParam(), .timeout = std::chrono::seconds(60)});
  }

  void check_all(const char* mesh_text, at::IntArrayRef shape, const std::vector<Placements>& extra) {
    const Mesh value = parse_mesh(mesh_text);
    std::vector<std::string> wrong;
    run(static_cast<int>(value.size()), [&](World& world) {
      const DeviceMesh mesh("cpu", value);
      const at::Tensor whole = torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape);
      std::vector<Placements> all = all_placements(value, whole.dim(), false);
      all.insert(all.end(), extra.begin(), extra.end());
      std::vector<std::string> mine;
      for (const Placements& from : all) {
        const at::Tensor x = distribute_any(whole, mesh, from);
        for (const Placements& to : all) {
          const at::Tensor wanted = to_local(distribute_any(whole, mesh, to));
          if (!to_local(redistribute(x, to)).equal(wanted)) mine.push_back(to_string(from) + " -> " + to_string(to));
        }
      }
      const at::Tensor count = torch::tensor(static_cast<int64_t>(mine.size()));
      all_reduce(world.group(), count).wait();
      if (count.item<int64_t>() > 0) {
        ADD_FAILURE() << count.item<int64_t>() << " wrong; on rank " << world.rank() << ": "
                      << (mine.empty() ? "" : mine[0]);
      }
    });
  }
};

TEST_P(RunMovesTest, KeepsTheValueOnOneAxis) {
  check_all("[a=2]", {150, 151}, {{StridedShard(1, 3)}, {Ragged(0, {0, 149, 150})}});
  check_all("[a=3]", {151, 149}, {{StridedShard(0, 2)}, {StridedShard(1, 2)}, {Ragged(1, {0, 1, 1, 149})}});
  check_all("[a=4]", {3, 70, 150}, {{StridedShard(1, 5)}});
}

TEST_P(RunMovesTest, KeepsTheValueOnTwoAxes) {
  check_all("[a=2, b=2]", {203, 205},
            {{StridedShard(0, 2), Shard(0)}, {Ragged(1, {0, 1, 205}), Shard(0)}, {Shard(1), StridedShard(1, 3)}});
}

// More than the caches hold: between threads each rank writes a share of what all take.
TEST_P(RunMovesTest, KeepsTheValueOfLargeGathers) {
  run(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = torch::arange(1203 * 1201, torch::kDouble).view({1203, 1201});
    for (const Placements& from :
         std::vector<Placements>{{Shard(0)}, {Shard(1)}, {StridedShard(1, 2)}, {Ragged(0, {0, 1, 1000, 1203})}}) {
      const at::Tensor x = distribute_any(whole, mesh, from);
      EXPECT_TRUE(to_local(redistribute(x, {Replicate()})).equal(whole)) << world.rank() << " " << to_string(from);
    }
  });
}

TEST_P(RunMovesTest, KeepsTheGradient) {
  run(3, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = torch::arange(200 * 211, torch::kDouble).view({200, 211});
    at::Tensor x = distribute_any(whole, mesh, {Shard(0)}).detach().requires_grad_(true);
    const at::Tensor y = redistribute(x, {Shard(1)});
    (y * whole).sum().backward();
    EXPECT_TRUE(full_tensor(x.grad()).equal(whole));
    EXPECT_TRUE(full_tensor(y.detach()).equal(whole));
  });
}

TEST_P(RunMovesTest, RanksThatHaveLittlePackAndMeetThoseThatDoNot) {
  run(3, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const at::Tensor whole = torch::arange(300 * 100, torch::kDouble).view({300, 100});
    const at::Tensor x = distribute_any(whole, mesh, {Ragged(0, {0, 1, 299, 300})});
    const at::Tensor y = redistribute(x, {Ragged(1, {0, 99, 100, 100})});
    EXPECT_TRUE(full_tensor(y).equal(whole)) << world.rank();
  });
}

TEST_P(RunMovesTest, ReshardAndGatherKeepTheValue) {
  run(4, [](World& world) {
    const auto chunks = [&](int64_t dim, std::vector<int64_t> ranks) {
      std::vector<sharded::RemoteDevice> places;
      for (const int64_t rank : ranks) places.emplace_back(rank, c10::Device("cpu"));
      return sharded::ShardingSpec(sharded::ChunkShardingSpec(dim, std::move(places)));
    };
    const at::Tensor whole = torch::arange(251 * 250, torch::kFloat).view({251, 250});
    const auto rows = sharded::shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    const auto columns = rows.reshard(chunks(1, {3, 1, 0, 2}));
    for (const int64_t dst : {0, 2}) {
      std::optional<at::Tensor> out;
      if (world.rank() == dst) out = torch::zeros_like(whole);
      columns.gather(dst, out);
      if (out) {
        EXPECT_TRUE(out->equal(whole));
      }
    }
  });
}

// Gloo takes what is packed. Where little may be packed at once, this takes rounds.
TEST(RoundsTest, ValuesArePackedPieceByPiece) {
  const auto check = [](const char* mesh_text, at::IntArrayRef shape, const std::vector<Placements>& extra) {
    const Mesh value = parse_mesh(mesh_text);
    spawn(static_cast<int>(value.size()),
          [&](World& world) {
            const DeviceMesh mesh("cpu", value);
            const at::Tensor whole = torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape);
            std::vector<Placements> from = all_placements(value, whole.dim(), true);
            std::vector<Placements> to = all_placements(value, whole.dim(), false);
            from.insert(from.end(), extra.begin(), extra.end());
            to.insert(to.end(), extra.begin(), extra.end());
            for (const Placements& here : from) {
              const at::Tensor x = distribute_any(whole, mesh, here);
              for (const Placements& there : to) {
                const at::Tensor y = redistribute(x, there, {.staging_bytes = 3000});
                EXPECT_TRUE(to_local(y).equal(to_local(distribute_any(whole, mesh, there))))
                    << "rank " << world.rank() << ": " << to_string(here) << " -> " << to_string(there);
              }
            }
            const CommRecorder recorder;
            redistribute(distribute_any(whole, mesh, from[1]), to[2], {.staging_bytes = 3000});
            EXPECT_GT(recorder.calls().size(), 2U) << recorder.to_string();
          },
          {.backend = "gloo", .timeout = std::chrono::seconds(60)});
  };
  check("[a=3]", {37, 41}, {{StridedShard(0, 2)}, {StridedShard(1, 2)}, {Ragged(1, {0, 1, 1, 41})}});
  check("[a=2, b=2]", {31, 42}, {{StridedShard(0, 2), Shard(0)}, {Ragged(1, {0, 1, 42}), Shard(0)}});
}

// The kernel's count of what this process holds, "VmRSS", or has held, "VmHWM".
int64_t held(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

// The memory that `f` takes at its highest, beside what the process holds before.
int64_t peak_of(const std::function<void()>& f) {
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // what it has held is forgotten
  const int64_t before = held("VmRSS");
  EXPECT_LT(held("VmHWM") - before, 1 << 20) << "the kernel does not forget the peak";
  f();
  return held("VmHWM") - before;
}

// One transport takes runs as they lie, the other what is packed. All that a rank's process takes is counted: what the
// transport does beside, in other threads or in shared memory, too.
TEST(MemoryTest, OfAProcessBesideInputAndOutputIsBounded) {
  constexpr int64_t kStaging = 1 << 20;
  constexpr int64_t kSmallThings = 3 << 20;  // a huge page that is not filled, the kernel's count, which is not exact
  const Placement r = Replicate();
  const std::vector<std::pair<Placements, Placements>> moves = {
      {{Shard(0), Shard(1)}, {Shard(1), Shard(0)}},    {{Shard(0), r}, {Shard(1), r}},
      {{StridedShard(0, 2), Shard(0)}, {r, Shard(1)}}, {{Shard(1), Shard(1)}, {r, r}},
      {{Ragged(0, {0, 300, 1021}), r}, {r, Shard(1)}}, {{Partial(), r}, {Shard(0), r}},
  };
  for (const char* backend : {"shm", "gloo"}) {
    over_processes({.backend = backend, .timeout = std::chrono::seconds(60)})(4, [&](Rank&) {
      mallopt(M_MMAP_THRESHOLD, 128 << 10);  // what is freed goes back to the kernel, and counts when it is taken again
      const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
      const auto numbered = [] { return torch::arange(1021 * 4099, torch::kFloat).view({1021, 4099}); };
      for (const auto& [from, to] : moves) {
        const at::Tensor x = distribute_any(numbered(), mesh, from);
        redistribute(x, to, {.staging_bytes = kStaging});  // what is made once and stays: groups, their shared memory
        at::Tensor y;
        const CommRecorder recorder;
        const int64_t peak = peak_of([&] { y = redistribute(x, to, {.staging_bytes = kStaging}); });
        const auto output = static_cast<int64_t>(to_local(y).nbytes());
        EXPECT_LE(peak, output + kStaging + kSmallThings)
            << backend << " " << to_string(from) << " -> " << to_string(to) << ", output " << output;
        EXPECT_GE(peak, output - (1 << 20)) << "nothing was counted";
        if (backend == std::string("gloo") && to != Placements{r, r}) {
          EXPECT_GT(recorder.calls().size(), 3U) << recorder.to_string();
        }
        EXPECT_TRUE(to_local(y).equal(to_local(distribute_any(numbered(), mesh, to)))) << to_string(to);
      }
    });
  }
}

// 1 + 1/1024 is 1 in bfloat16, and 1 and 1/256 add up to 1 there, which they do not in float32.
TEST(TypesOnTheWayTest, GradientsGoBackInTheSameTypes) {
  constexpr double kFine = 1 + 1.0 / 1024;
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    const auto leaf = [&](const at::Tensor& local, const Placement& placement) {
      return from_local(local, mesh, {placement}, {.shape = Dims{8, 8}}).detach().requires_grad_(true);
    };
    const auto spread = [&](double value, const Placement& placement, c10::ScalarType dtype) {
      return distribute_tensor(torch::full({8, 8}, value, dtype), mesh, {placement}, {.source = std::nullopt});
    };
    const auto small_parts = [&] { return torch::full({8, 8}, world.rank() == 0 ? 1.0 : 1.0 / 256, torch::kBFloat16); };
    const auto sum_of_parts = static_cast<float>(c10::BFloat16(1 + 3.F / 256));
    const auto expect = [](const at::Tensor& tensor, const Placement& placement, c10::ScalarType dtype, float value) {
      EXPECT_EQ(placements_of(tensor), Placements{placement});
      EXPECT_EQ(tensor.scalar_type(), dtype);
      const at::Tensor local = to_local(tensor);
      EXPECT_TRUE(local.equal(torch::full_like(local, value))) << local[0][0].item<float>() << ", not " << value;
    };
    // The bytes that the gradient's way back takes.
    const auto bytes_back = [&](const at::Tensor& y, const at::Tensor& gradient) {
      const CommRecorder recorder;
      y.backward(gradient);
      return recorder.bytes();
    };
    constexpr int64_t kShare = 8 * 8 * 3 / 4;  // the elements that a rank lacks of all
    {
      const at::Tensor x = leaf(small_parts(), Partial());
      const at::Tensor y = redistribute(x, {Replicate()}, {.reduce_dtype = torch::kFloat});
      expect(y.detach(), Replicate(), torch::kBFloat16, sum_of_parts);
      EXPECT_EQ(bytes_back(y, spread(1.5, Replicate(), torch::kBFloat16)), 0);
      expect(x.grad(), Replicate(), torch::kBFloat16, 1.5F);
    }
    {
      const at::Tensor x = leaf(small_parts(), Partial());
      const at::Tensor y = redistribute(x, {Shard(0)}, {.reduce_dtype = torch::kFloat});
      expect(y.detach(), Shard(0), torch::kBFloat16, sum_of_parts);
      EXPECT_EQ(bytes_back(y, spread(1.5, Shard(0), torch::kBFloat16)), kShare * 2) << "nothing is summed up";
      expect(x.grad(), Replicate(), torch::kBFloat16, 1.5F);
    }
    {
      const at::Tensor x = leaf(torch::full({8, 8}, kFine), Partial());
      const at::Tensor y = redistribute(x, {Shard(0)}, {.reduce_dtype = torch::kFloat, .move_dtype = torch::kBFloat16});
      expect(y.detach(), Shard(0), torch::kFloat, static_cast<float>(4 * kFine));
      EXPECT_EQ(bytes_back(y, spread(kFine, Shard(0), torch::kFloat)), kShare * 2);
      expect(x.grad(), Replicate(), torch::kFloat, 1.F);
    }
    {
      const at::Tensor x = leaf(torch::full({2, 8}, kFine), Shard(0));
      const at::Tensor y = redistribute(x, {Shard(1)}, {.move_dtype = torch::kBFloat16});
      expect(y.detach(), Shard(1), torch::kFloat, 1.F);
      EXPECT_EQ(bytes_back(y, spread(kFine, Shard(1), torch::kFloat)), kShare / 4 * 2);
      expect(x.grad(), Shard(0), torch::kFloat, 1.F);
    }
    {  // the gradient is what is summed up
      const at::Tensor x = leaf(torch::ones({2, 8}, torch::kBFloat16), Shard(0));
      const at::Tensor y = redistribute(x, {Replicate()}, {.reduce_dtype = torch::kFloat});
      y.backward(from_local(small_parts(), mesh, {Partial()}, {.shape = Dims{8, 8}}));
      expect(x.grad(), Shard(0), torch::kBFloat16, sum_of_parts);
    }
    {  // and travels in a type of its own where it is not
      const at::Tensor x = leaf(torch::full({2, 8}, kFine), Shard(0));
      const at::Tensor y =
          redistribute(x, {Replicate()}, {.reduce_dtype = torch::kFloat, .move_dtype = torch::kBFloat16});
      y.backward(from_local(torch::full({8, 8}, kFine), mesh, {Partial()}, {.shape = Dims{8, 8}}));
      expect(x.grad(), Shard(0), torch::kFloat, static_cast<float>(4 * kFine));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, RunMovesTest, ::testing::Values("threads", "shm"),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace sherd::testing
