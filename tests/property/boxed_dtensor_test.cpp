// Whatever boxes the ranks hold: a DTensor of LocalShardsWrappers gives what the whole tensor gives, gradients too.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "property/random_spec.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, c10::ScalarType dtype = c10::kDouble) {
  return torch::arange(c10::multiply_integers(shape), torch::kLong).remainder(11).sub(4).view(shape).to(dtype);
}

// A mesh, placements, and boxes that tile the tensor once for each copy, drawn from a seed that all ranks share.
class BoxMaker : public SpecMaker {
 public:
  BoxMaker(uint32_t seed, const World& world) : SpecMaker(seed, world.size()), world_(world), seed_(seed) {}

  DeviceMesh mesh() {
    const int64_t n = world_.size();
    return n == 4 && below(2) == 0 ? init_device_mesh("cpu", {2, 2}, {"a", "b"}) : init_device_mesh("cpu", {n}, {"a"});
  }

  Placements placements(const DeviceMesh& mesh, const Dims& size) {
    Placements placements;
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
      if (size.empty() || below(4) == 0) {
        placements.emplace_back(Replicate());
      } else {
        placements.emplace_back(Shard(below(static_cast<int64_t>(size.size()))));
      }
    }
    return placements;
  }

  // This rank's boxes, in an order of its own. Ranks that differ on a replicated axis are cut in different ways.
  std::vector<Box> boxes(const Dims& size, const DeviceMesh& mesh, const Placements& placements) {
    std::map<Dims, std::vector<int64_t>> copies;
    for (const int64_t rank : mesh.mesh().ranks()) {
      Dims copy;
      for (size_t axis = 0; axis < placements.size(); ++axis) {
        if (is_replicate(placements[axis])) copy.push_back((*mesh.mesh().coordinate_of(rank))[axis]);
      }
      copies[copy].push_back(rank);
    }
    std::vector<Box> mine;
    for (const auto& [copy, ranks] : copies) {
      SpecMaker cut(static_cast<uint32_t>(below(1000)), static_cast<int64_t>(ranks.size()));
      for (const auto& shard : cut.grid(size).build_metadata(size).shards_metadata) {
        if (ranks[static_cast<size_t>(*shard.placement->rank)] == world_.rank()) mine.push_back(shard.box());
      }
    }
    std::mt19937 own(seed_ * 8 + static_cast<uint32_t>(world_.rank()));
    std::shuffle(mine.begin(), mine.end(), own);
    return mine;
  }

  Tensor dtensor(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
    const Dims size = whole.sizes().vec();
    std::vector<Tensor> shards;
    std::vector<Dims> offsets;
    for (const Box& box : boxes(size, mesh, placements)) {
      Tensor part = whole.detach();
      for (size_t d = 0; d < size.size(); ++d) {
        part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
      }
      shards.push_back(part.clone());
      offsets.push_back(box.offset);
    }
    const LocalShardsWrapper local(shards, offsets, {.global_size = size, .dtype = whole.scalar_type()});
    FromLocalOptions options;
    if (below(2) == 0) options.shape = size;
    const bool has_copies = std::any_of(placements.begin(), placements.end(), is_replicate);
    options.check = !has_copies && below(2) == 0;
    Tensor result = from_local(local, mesh, placements, options).detach();
    return result.set_requires_grad(whole.requires_grad());
  }

 private:
  const World& world_;
  uint32_t seed_;
};

bool in_boxes(const Tensor& tensor) { return is_dtensor(tensor) && is_local_shards(to_local(tensor.detach())); }
Tensor whole_of(const Tensor& tensor) { return is_dtensor(tensor) ? full_tensor(tensor) : tensor; }

class BoxedOn : public ::testing::TestWithParam<int> {
 protected:
  static void each(int seeds, const std::function<void(BoxMaker&)>& body) {
    spawn(GetParam(),
          [&](World& world) {
            for (int seed = 0; seed < seeds; ++seed) {
              BoxMaker make(static_cast<uint32_t>(seed), world);
              SCOPED_TRACE("seed " + std::to_string(seed));
              body(make);
            }
          },
          {.timeout = std::chrono::seconds(20)});
  }
};

TEST_P(BoxedOn, ComesTogetherAgain) {
  for (const auto dtype : {c10::kLong, c10::kBool, c10::kBFloat16, c10::kDouble, c10::kComplexFloat}) {
    each(25, [&](BoxMaker& make) {
      const Dims size = make.size();
      const Tensor whole = numbers(size, dtype);
      const auto mesh = make.mesh();
      const Tensor x = make.dtensor(whole, mesh, make.placements(mesh, size));
      EXPECT_EQ(x.sizes().vec(), size);
      EXPECT_EQ(x.scalar_type(), dtype);
      EXPECT_TRUE(in_boxes(x));
      EXPECT_TRUE(full_tensor(x).equal(whole)) << to_string(x);
    });
  }
}

TEST_P(BoxedOn, GoesToAnyPlacementsAndBack) {
  each(40, [](BoxMaker& make) {
    const Dims size = make.size();
    const Tensor whole = numbers(size).requires_grad_();
    const auto mesh = make.mesh();
    const Tensor x = make.dtensor(whole, mesh, make.placements(mesh, size));
    const Placements to = make.placements(mesh, size);
    const Tensor factor = numbers(size) + 1;
    const auto expect = [&](const Tensor& moved, const Placements& there) {
      EXPECT_FALSE(in_boxes(moved));
      EXPECT_EQ(placements_of(moved), there);
      EXPECT_TRUE(full_tensor(moved).detach().equal(whole.detach())) << to_string(x) << to_string(moved);
      x.mutable_grad() = Tensor();
      (moved * factor).sum().backward();
      ASSERT_TRUE(in_boxes(x.grad()));
      EXPECT_EQ(LocalShardsWrapper(to_local(x.grad())).local_offsets(),
                LocalShardsWrapper(to_local(x.detach())).local_offsets());
      EXPECT_TRUE(full_tensor(x.grad()).equal(factor));
    };
    expect(redistribute(x, to), to);
    expect(redistribute(x, placements_of(x)), placements_of(x));
    expect(redistribute_async(x, to).wait(), to);
    expect(redistribute(std::vector<Tensor>{x, x * 1}, std::vector<Placements>{to, to})[0], to);
    std::vector<int64_t> ranks = mesh.mesh().ranks();
    std::reverse(ranks.begin(), ranks.end());
    const DeviceMesh other("cpu", Mesh({{"c", static_cast<int64_t>(ranks.size())}}, ranks));
    expect(redistribute(x, other, {Shard(0)}), {Shard(0)});
    EXPECT_TRUE(full_tensor(redistribute(x, to, {.staging_bytes = 16, .move_dtype = c10::kFloat})).equal(whole));
    const Tensor back = full_tensor(x);
    x.mutable_grad() = Tensor();
    (back * factor).sum().backward();
    EXPECT_TRUE(full_tensor(x.grad()).equal(factor));
    const std::vector<Tensor> read = read_boxes(x, {{Dims(size.size(), 0), size}});
    EXPECT_TRUE(read[0].equal(whole));
  });
}

// The operator on whole tensors; on x in boxes, y in other boxes, an ordinary DTensor and a plain tensor.
using Operator = std::function<Tensor(const Tensor& x, const Tensor& y, const Tensor& z, const Tensor& plain)>;
struct Named {
  const char* name;
  bool stays;  // in the boxes of x
  Operator run;
};
Tensor as_matrix(const Tensor& tensor) { return tensor.reshape({tensor.size(0), -1}); }

// clang-format off
const Named kOperators[] = {
    {"relu", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.relu(); }},
    {"add", true, [](const Tensor& x, const Tensor& y, const Tensor&, const Tensor&) { return x + y; }},
    {"add dtensor", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return z + x; }},
    {"mul plain", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor& plain) { return plain * x; }},
    {"broadcast plain", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor& plain) { return x * plain.select(0, 0); }},
    {"broadcast dtensor", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return x * z.sum(0); }},
    {"broadcast one row", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return x - z.amax(0, true); }},
    {"a number that all ranks have", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return x / (z.norm() + 1); }},
    {"where", true, [](const Tensor& x, const Tensor& y, const Tensor& z, const Tensor&) { return torch::where(z > 0, x, y); }},
    {"to", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.to(torch::kFloat).to(torch::kDouble); }},
    {"clone", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.clone() + x.detach(); }},
    {"in place", true, [](const Tensor& x, const Tensor& y, const Tensor& z, const Tensor& plain) {
       return x.mul(1).add_(y).mul_(plain).sub_(z).clamp_min_(-1); }},
    {"copy", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return torch::zeros_like(x).copy_(z) * x; }},
    {"full_like", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x * torch::full_like(x, 2); }},
    {"view", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.view_as(x) * 2; }},
    {"foreach", true, [](const Tensor& x, const Tensor& y, const Tensor&, const Tensor&) { return at::_foreach_mul({x, y}, std::vector<Tensor>{y, x})[0]; }},
    {"foreach dtensor", true, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return at::_foreach_add({x}, std::vector<Tensor>{z})[0]; }},
    {"sum", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.sum(); }},
    {"mean", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.mean(); }},
    {"norm", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.norm(); }},
    {"sum of a dim", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.sum(0); }},
    {"softmax", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.softmax(0); }},
    {"matmul", false, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return as_matrix(x).t().matmul(as_matrix(z)); }},
    {"matmul of two", false, [](const Tensor& x, const Tensor& y, const Tensor&, const Tensor&) { return as_matrix(y).t().matmul(as_matrix(x)); }},
    {"cumsum", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.cumsum(0); }},
    {"cumsum in place", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return (x * 1).cumsum_(0); }},
    {"select", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) { return x.select(0, 0) * 3; }},
    {"write through a view", true, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) {
       Tensor y = x * 1;
       y.select(0, 0).mul_(2);
       return y; }},
    {"a view sees what is written", false, [](const Tensor& x, const Tensor&, const Tensor&, const Tensor&) {
       Tensor y = x * 1;
       const Tensor row = y.select(0, 0);
       y.add_(1);
       return row * 2; }},
    {"write an ordinary one", false, [](const Tensor& x, const Tensor&, const Tensor& z, const Tensor&) { return (z * 1).add_(x); }},
};
// clang-format on

TEST_P(BoxedOn, OperatorsGiveWhatTheWholeTensorGives) {
  for (const Named& op : kOperators) {
    SCOPED_TRACE(op.name);
    each(10, [&](BoxMaker& make) {
      const Dims size = make.size(1);
      const auto mesh = make.mesh();
      const std::vector<Tensor> dense = {numbers(size).requires_grad_(), (numbers(size) * 2 + 1).requires_grad_(),
                                         (numbers(size) - 1).requires_grad_(), (numbers(size) - 3).requires_grad_()};
      const std::vector<Tensor> given = {
          make.dtensor(dense[0], mesh, make.placements(mesh, size)),
          make.dtensor(dense[1], mesh, make.placements(mesh, size)),
          distribute_tensor(dense[2].detach().clone().requires_grad_(), mesh, make.placements(mesh, size)),
          dense[3].detach().clone().requires_grad_()};
      SCOPED_TRACE(to_string(given[0]) + ", " + to_string(given[1]) + ", " + to_string(given[2]));
      const Tensor expected = op.run(dense[0], dense[1], dense[2], dense[3]);
      const Tensor result = op.run(given[0], given[1], given[2], given[3]);
      ASSERT_EQ(result.sizes(), expected.sizes());
      EXPECT_EQ(in_boxes(result), op.stays);
      EXPECT_TRUE(whole_of(result.detach()).allclose(expected.detach()));
      const Tensor factor = numbers(expected.sizes()) + 2;
      (expected * factor).sum().backward();
      (result * factor).sum().backward();
      for (size_t i = 0; i < given.size(); ++i) {
        ASSERT_EQ(given[i].grad().defined(), dense[i].grad().defined()) << i;
        if (!dense[i].grad().defined()) continue;
        if (i < 3) {  // that of a plain tensor lies as it came
          EXPECT_EQ(in_boxes(given[i].grad()), i < 2);
        }
        EXPECT_TRUE(whole_of(given[i].grad()).allclose(dense[i].grad())) << i;
      }
    });
  }
}

TEST_P(BoxedOn, OptimizersStepOnThem) {
  each(6, [](BoxMaker& make) {
    const Dims size = make.size(1);
    const auto mesh = make.mesh();
    const Tensor whole = numbers(size).requires_grad_();
    const Tensor x = make.dtensor(whole, mesh, make.placements(mesh, size));
    torch::optim::AdamW dense({whole}, torch::optim::AdamWOptions(0.1));
    torch::optim::AdamW boxed({x}, torch::optim::AdamWOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      dense.zero_grad();
      boxed.zero_grad();
      (whole * whole).sum().backward();
      (x * x).sum().backward();
      torch::nn::utils::clip_grad_norm_({whole}, 3.0);
      torch::nn::utils::clip_grad_norm_({x}, 3.0);
      dense.step();
      boxed.step();
    }
    EXPECT_TRUE(in_boxes(x));
    EXPECT_TRUE(full_tensor(x.detach()).allclose(whole.detach()));
  });
}

TEST_P(BoxedOn, GradientsReachTheWrapperAndComeFromIt) {
  each(20, [](BoxMaker& make) {
    const Dims size = make.size(1);
    const auto mesh = make.mesh();
    const Tensor whole = numbers(size);
    const Tensor x = make.dtensor(whole, mesh, make.placements(mesh, size));
    LocalShardsWrapper local(to_local(x));
    local.requires_grad_();
    const Tensor again = from_local(local, mesh, placements_of(x), {.shape = size});
    const Tensor factor = numbers(size) + 2;
    (again * factor).sum().backward();
    const LocalShardsWrapper grad(local.grad());
    EXPECT_EQ(grad.local_offsets(), local.local_offsets());
    EXPECT_TRUE(full_tensor(from_local(local.grad(), mesh, placements_of(x), {.shape = size})).equal(factor));

    const Tensor leaf = x.detach().requires_grad_();
    const Tensor part = to_local(leaf);
    ASSERT_TRUE(is_local_shards(part));
    (part * part).sum().backward();
    EXPECT_TRUE(full_tensor(leaf.grad()).equal(whole * 2));
    leaf.mutable_grad() = Tensor();
    to_local(leaf).sum().backward();
    EXPECT_TRUE(full_tensor(leaf.grad()).equal(torch::ones_like(whole)));
  });
}

TEST_P(BoxedOn, DifferentiatesTwice) {
  each(10, [](BoxMaker& make) {
    const Dims size = make.size(1);
    const auto mesh = make.mesh();
    const Tensor whole = numbers(size).requires_grad_();
    const Tensor x = make.dtensor(whole, mesh, make.placements(mesh, size));
    const Tensor first = torch::autograd::grad({redistribute(x, placements_of(x)).pow(3).sum()}, {x}, {}, {}, true)[0];
    first.sum().backward();
    EXPECT_TRUE(full_tensor(x.grad()).allclose(whole.detach() * 6));
  });
}

TEST_P(BoxedOn, NumbersDependOnPlaceAndSeedAlone) {
  each(20, [](BoxMaker& make) {
    const Dims size = make.size(1);
    const auto mesh = make.mesh();
    const Tensor x = make.dtensor(numbers(size, c10::kFloat), mesh, make.placements(mesh, size));
    manual_seed(7);
    const Tensor drawn = torch::rand_like(x);
    const Tensor more = x.clone().normal_();
    EXPECT_TRUE(in_boxes(drawn));
    manual_seed(7);
    EXPECT_TRUE(
        full_tensor(drawn).equal(full_tensor(rand(size, mesh, Placements(placements_of(x).size(), Replicate())))));
    EXPECT_TRUE(
        full_tensor(more).equal(full_tensor(randn(size, mesh, Placements(placements_of(x).size(), Replicate())))));
    manual_seed(9);
    const Tensor dropped = torch::dropout(x, 0.5, true);
    manual_seed(9);
    EXPECT_TRUE(full_tensor(dropped).equal(full_tensor(torch::dropout(redistribute(x, placements_of(x)), 0.5, true))));
  });
}

TEST_P(BoxedOn, WhatAllRanksWriteIsTheTensorOnce) {
  each(30, [](BoxMaker& make) {
    const Dims size = make.size();
    const auto mesh = make.mesh();
    const Tensor whole = numbers(size);
    const Placements placements = make.placements(mesh, size);
    Placements strided = placements;
    for (Placement& p : strided) {
      if (is_shard(p) && make.below(2) == 0) p = StridedShard(sharded_dim(p), 2);
    }
    const Tensor kinds[] = {make.dtensor(whole, mesh, placements), distribute_tensor(whole.clone(), mesh, placements),
                            distribute_tensor(whole.clone(), mesh, strided),
                            sharded::shard_tensor(whole, make.spec(size))};
    for (const Tensor& tensor : kinds) {
      const auto table = checkpointable(tensor);
      EXPECT_EQ(table->global_size(), size);
      Tensor seen = torch::zeros_like(whole);
      Tensor counts = torch::zeros(size, torch::kLong);
      for (const WriteItem& item : table->write_items("x")) {
        EXPECT_EQ(item.global_size, size);
        EXPECT_EQ(item.properties.dtype, whole.scalar_type());
        Tensor there = seen;
        Tensor count = counts;
        for (size_t d = 0; d < size.size(); ++d) {
          const auto dim = static_cast<int64_t>(d);
          there = there.narrow(dim, item.chunk.offsets[d], item.chunk.sizes[d]);
          count = count.narrow(dim, item.chunk.offsets[d], item.chunk.sizes[d]);
        }
        there.add_(item.tensor);
        count.add_(1);
        EXPECT_TRUE(table->shard(item.index()).is_same_size(item.tensor));
        EXPECT_TRUE(item.tensor.numel() == 0 || table->shard(item.index()).is_alias_of(item.tensor));
      }
      all_reduce(current_world().group(), seen).wait();
      all_reduce(current_world().group(), counts).wait();
      EXPECT_TRUE(seen.equal(whole));
      EXPECT_TRUE(counts.eq(1).all().item<bool>());
      // And loading writes into the tensor itself.
      for (const ChunkMetadata& chunk : table->chunk_list()) table->shard({"x", chunk.offsets}).fill_(3);
      if (is_dtensor(tensor)) {
        EXPECT_TRUE(full_tensor(tensor).eq(3).all().item<bool>());
      }
    }
  });
}

TEST_P(BoxedOn, ElementWiseOperatorsCommunicateNothing) {
  each(10, [](BoxMaker& make) {
    const Dims size = make.size(1);
    const auto mesh = make.mesh();
    const Tensor x = make.dtensor(numbers(size), mesh, make.placements(mesh, size));
    Tensor y = x * 2;
    const CommRecorder recorder;
    y = (x + y).relu().mul_(x).add_(1.0);
    at::_foreach_add_({y}, std::vector<Tensor>{x});
    EXPECT_EQ(recorder.to_string(), "");
    const Tensor plain = numbers(size);
    y.copy_(plain);
    EXPECT_EQ(recorder.to_string(), "");
    EXPECT_TRUE(full_tensor(y).equal(plain));
  });
}

// torch's own collective, by the name that torch's registry knows the group by.
TEST_P(BoxedOn, AllGatherIntoTensorTakesTheClosedUpTensor) {
  spawn(GetParam(), [&](World& world) {
    const auto group = world.group();
    const auto process_group =
        c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), world.rank(), world.size());
    process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                              group.backend(c10::DeviceType::CPU));
    const std::string name = "shards of rank " + std::to_string(world.rank());
    process_group->setGroupName(name);
    c10d::register_process_group(name, process_group);
    // Boxed: what C++ type the name has differs between torch's releases.
    const auto call = [](const char* op, torch::jit::Stack stack) {
      c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
      return stack[0].toTensor();
    };
    const auto gathered = [&](const Tensor& tensor) {
      const Tensor result = call("_c10d_functional::all_gather_into_tensor", {tensor, world.size(), name});
      return call("_c10d_functional::wait_tensor", {result});
    };
    const auto repeated = [&](const Tensor& tensor) {
      std::vector<int64_t> times(static_cast<size_t>(tensor.dim()), 1);
      times[0] = world.size();
      return tensor.repeat(times);
    };
    const Tensor wide = numbers({4, 2});
    const Tensor narrow = numbers({4, 1}) + 9;
    EXPECT_TRUE(
        gathered(LocalShardsWrapper({narrow, wide}, {{0, 7}, {0, 0}})).equal(repeated(torch::cat({wide, narrow}, 1))));
    EXPECT_TRUE(
        gathered(LocalShardsWrapper({wide, wide + 1}, {{4, 0}, {0, 0}})).equal(repeated(torch::cat({wide + 1, wide}))));
    EXPECT_TRUE(gathered(LocalShardsWrapper({numbers({3}), numbers({2})}, {{0}, {5}}))
                    .equal(repeated(torch::cat({numbers({3}), numbers({2})}))));
    EXPECT_TRUE(gathered(LocalShardsWrapper({wide, narrow}, {{4, 4}, {0, 0}}))
                    .equal(repeated(torch::cat({narrow.reshape({-1}), wide.reshape({-1})}))));
    all_gather_text(group, "");  // before the name goes
    c10d::unregister_process_group(name);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BoxedOn, ::testing::Values(1, 2, 3, 4));

// What the placements of real tables look like: the cases in which PyTorch's full_tensor fails.
TEST(BoxedDTensorTest, TablesOfEmbeddings) {
  spawn(3, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {3}, {"tp"});
    const Tensor whole = numbers({4, 9});
    const auto r = static_cast<int64_t>(world.rank());
    const auto cut = [&](int64_t from, int64_t width) { return whole.narrow(1, from, width).clone(); };
    const auto expect = [&](const LocalShardsWrapper& local, const Tensor& all, const Placement& placement) {
      const Tensor x = from_local(local, mesh, {placement}, {.shape = all.sizes().vec()});
      EXPECT_TRUE(full_tensor(x).equal(all)) << to_string(local);
      EXPECT_TRUE(full_tensor(redistribute(x, {Shard(0)})).equal(all));
    };
    expect({{cut(3 * r, 2), cut(3 * r + 2, 1)}, {{0, 3 * r}, {0, 3 * r + 2}}}, whole, Shard(1));
    // Columns that alternate between the ranks.
    expect({{cut(r, 1), cut(3 + r, 1), cut(6 + r, 1)}, {{0, r}, {0, 3 + r}, {0, 6 + r}}}, whole, Shard(1));
    // Everything on one rank: the others have none of it.
    expect(r == 1 ? LocalShardsWrapper({whole.clone()}, {{0, 0}})
                  : LocalShardsWrapper({}, {}, {.global_size = Dims{4, 9}, .dtype = c10::kDouble}),
           whole, Shard(1));
    // Optimizer state, in uneven parts and the wrong order.
    const Tensor state = numbers({10});
    const int64_t borders[] = {0, 1, 7, 10};
    const int64_t from = borders[r];
    const int64_t rows = borders[r + 1] - from;
    expect({{state.narrow(0, from + rows / 2, rows - rows / 2).clone(), state.narrow(0, from, rows / 2).clone()},
            {{from + rows / 2}, rows / 2 > 0 ? Dims{from} : Dims{10}}},
           state, Shard(0));
  });
}

}  // namespace
}  // namespace sherd::testing
