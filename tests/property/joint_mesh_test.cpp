// Tensors on slices of one mesh meet as if each were replicated over the axes that its slice lacks.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  EXPECT_TRUE(torch::allclose(is_dtensor(got) ? full_tensor(got) : got, expected, 1e-10, 1e-10)) << what;
}

struct Case {
  std::string name;
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

std::vector<Case> cases() {
  return {
      {"mm", {numbers({6, 8}), numbers({8, 4}, 1)}, [](const auto& t) { return t[0].mm(t[1]); }},
      {"add", {numbers({6, 8}), numbers({8}, 1)}, [](const auto& t) { return t[0] + t[1]; }},
      {"mul", {numbers({5, 7}), numbers({5, 7}, 1)}, [](const auto& t) { return t[0] * t[1]; }},
      {"linear",
       {numbers({3, 5, 8}), numbers({4, 8}, 1), numbers({4}, 2)},
       [](const auto& t) { return F::linear(t[0], t[1], t[2]); }},
      {"layer_norm",
       {numbers({6, 8}), numbers({8}, 1), numbers({8}, 2)},
       [](const auto& t) { return torch::layer_norm(t[0], {8}, t[1], t[2]); }},
      {"cat",
       {numbers({6, 3}), numbers({6, 5}, 1)},
       [](const auto& t) {
         return torch::cat({t[0], t[1]}, 1);
       }},
      {"matmul softmax",
       {numbers({4, 6, 8}), numbers({4, 8, 6}, 1)},
       [](const auto& t) { return torch::softmax(t[0].matmul(t[1]), -1); }},
  };
}

void check(const Case& one, const std::vector<std::pair<DeviceMesh, Placements>>& where, const std::string& what) {
  const auto run = [&](std::vector<Tensor> inputs) {
    for (Tensor& input : inputs) input.set_requires_grad(true);
    const Tensor result = one.run(inputs);
    (result * numbers(result.sizes(), 9)).sum().backward();
    return std::pair(result.detach(), inputs);
  };
  std::vector<Tensor> plain;
  std::vector<Tensor> spread;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    plain.push_back(one.inputs[i].clone());
    spread.push_back(distribute_tensor(one.inputs[i].clone(), where[i].first, where[i].second));
  }
  const auto [expected, leaves] = run(plain);
  const auto [got, parts] = run(spread);
  expect_close(got, expected, what);
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_TRUE(parts[i].grad().defined()) << what;
    EXPECT_TRUE(mesh_of(parts[i].grad()) == where[i].first) << what << ": the gradient is on another mesh";
    EXPECT_EQ(placements_of(parts[i].grad()), where[i].second) << what;
    expect_close(parts[i].grad(), leaves[i].grad(), what + ", gradient " + std::to_string(i));
  }
}

TEST(JointMesh, OperandsOfSlicesGiveTheValuesAndGradientsOfOneDevice) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const std::vector<DeviceMesh> slices = {mesh["dp"], mesh["tp"], mesh};
    const std::vector<Placement> ways = {Replicate(), Shard(0), Shard(1)};
    for (const Case& one : cases()) {
      for (size_t a = 0; a < 3; ++a) {
        for (size_t b = 0; b < 3; ++b) {
          for (const Placement& left : ways) {
            for (const Placement& right : ways) {
              std::vector<std::pair<DeviceMesh, Placements>> where;
              for (size_t i = 0; i < one.inputs.size(); ++i) {
                Placement way = i == 0 ? left : right;
                if (sharded_dim(way) >= one.inputs[i].dim()) way = Shard(0);
                const DeviceMesh& on = slices[i == 0 ? a : b];
                where.emplace_back(on, Placements(static_cast<size_t>(on.ndim()), way));
              }
              check(one, where,
                    one.name + ": " + to_string(where[0].second) + " on " + to_string(where[0].first) + " and " +
                        to_string(where[1].second) + " on " + to_string(where[1].first));
            }
          }
        }
      }
    }
  });
}

TEST(JointMesh, TheResultIsOnTheAxesOfBoth) {
  spawn(8, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), mesh["dp"], {Shard(0)});
    const Tensor w = distribute_tensor(numbers({6, 8}, 1), mesh["tp"], {Shard(1)});
    const Tensor y = x.mm(w);
    EXPECT_EQ(placements_of(y), (Placements{Shard(0), Shard(1)}));
    EXPECT_TRUE(mesh_of(y) == (mesh[{"dp", "tp"}]));
    // Moved to a slice, and back.
    const Tensor rows = redistribute(y, mesh["dp"], {Shard(0)});
    EXPECT_TRUE(mesh_of(rows) == mesh["dp"]);
    expect_close(rows, numbers({4, 6}).mm(numbers({6, 8}, 1)), "lowered");
    expect_close(redistribute(rows, mesh, {Replicate(), Shard(1), Shard(0)}), full_tensor(y), "lifted");
  });
}

// Each rank's slice is another one: nobody leaves the mesh.
TEST(JointMesh, BoxesAndRelabelledTensorsGoToASlice) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor whole = numbers({4, 6});
    const int64_t tp = (*mesh.coordinate())[1];
    const LocalShardsWrapper rows({whole.narrow(0, tp, 1).clone(), whole.narrow(0, tp + 2, 1).clone()},
                                  {{tp, 0}, {tp + 2, 0}});
    const Tensor boxes = from_local(rows, mesh, {Replicate(), Shard(0)}, {.shape = Dims{4, 6}});
    const Tensor sharded = distribute_tensor(whole, mesh, {Shard(1), Shard(0)});
    for (const bool relabel : {false, true}) {
      for (const Tensor& x : {boxes, sharded}) {
        const Tensor there = redistribute(x, mesh["tp"], {Shard(0)}, {.relabel = relabel});
        EXPECT_TRUE(mesh_of(there) == mesh["tp"]);
        EXPECT_TRUE(full_tensor(there).equal(whole)) << to_string(x);
      }
    }
    EXPECT_EQ(redistribution_text(boxes, mesh["tp"], {Shard(0)}), "exchange of boxes, nothing to do");
  });
}

// What is averaged afterwards is summed in more than 16 bits.
TEST(JointMesh, SumsAndAveragesOfHalvesCross) {
  spawn(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const DeviceMesh other("cpu", parse_mesh("[c=4]{3, 2, 1, 0}"));
    const Tensor x = from_local(torch::full({4}, 30000., torch::kHalf), mesh, {Partial(ReduceOp::avg), Partial()});
    const Tensor there = redistribute(x, other, {Shard(0)});
    EXPECT_TRUE(full_tensor(there).eq(60000).all().item<bool>()) << world.rank();
  });
}

TEST(JointMesh, WhatIsWrittenStaysWhereItIs) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Tensor sum = distribute_tensor(numbers({4, 6}), mesh["tp"], {Shard(1)});
    const Tensor added = distribute_tensor(numbers({4, 6}, 1), mesh, {Shard(0), Shard(1)});
    sum.add_(added);
    EXPECT_TRUE(mesh_of(sum) == mesh["tp"]);
    EXPECT_EQ(placements_of(sum), Placements{Shard(1)});
    expect_close(sum, numbers({4, 6}) + numbers({4, 6}, 1), "add_");
  });
}

TEST(JointMesh, MeshesOfDifferentRootsDoNotMeet) {
  spawn(4, [](World&) {
    const DeviceMesh one = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const DeviceMesh other = init_device_mesh("cpu", {4}, {"all"});
    const Tensor x = distribute_tensor(numbers({4, 6}), one["dp"], {Shard(0)});
    const Tensor w = distribute_tensor(numbers({4, 6}), other, {Shard(0)});
    EXPECT_THROW(x + w, c10::ValueError);
    EXPECT_THROW(x + distribute_tensor(numbers({4, 6}), one.flatten("both"), {Shard(0)}), c10::ValueError);
  });
}

}  // namespace
}  // namespace sherd::testing
