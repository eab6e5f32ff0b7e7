// Numbers on a GPU: those of the CPU to the last bit, those of PyTorch's DTensor, and those of torch itself.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "property/distribute_any.h"
#include "property/random_operators.h"
#include "sherd/dtensor.h"
#include "sherd/random.h"

namespace sherd::testing {
namespace {

using at::Tensor;

class RandomCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};

at::Generator torchs(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0)).clone();
  generator.set_current_seed(seed);
  return generator;
}

TEST_F(RandomCudaTest, DrawsTheBitsOfTheCpu) {
  const Dims shape = {5, 7, 6};
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2, 2});
    const auto check = [&](const Operator& op, bool given) {
      for (const auto dtype : op.dtypes) {
        const Tensor x = numbers_in_unit(shape, dtype);
        Tensor expected;
        {
          const DeviceMesh cpu = init_device_mesh("cpu", {2, 2});
          const Generator g(7);
          const GeneratorScope scope(g);
          expected = given ? op.draw(x, g) : full_tensor(op.draw(distribute_tensor(x, cpu, {Shard(0), Shard(1)}), g));
        }
        for (const Placements& p :
             {Placements{Shard(0), Shard(1)}, {Shard(2), Replicate()}, {StridedShard(1, 2), Shard(1)}}) {
          const Generator g(7);
          const GeneratorScope scope(g);
          const Tensor drawn = full_tensor(op.draw(distribute_tensor(x.cuda(), mesh, p), g)).cpu();
          EXPECT_TRUE(same_bits(drawn, expected)) << op.name << " " << dtype << " " << to_string(p) << world.rank();
        }
      }
    };
    for (const Operator& op : operators()) {
      // What torch computes around the draw on a GPU may round otherwise.
      if (op.name.starts_with("normal(") || op.name == "rrelu") continue;
      check(op, true);
    }
    for (const Operator& op : operators_without_generator()) {
      if (op.name == "dropout" || op.name == "native_dropout" || op.name == "its mask") check(op, false);
    }
  });
}

TEST_F(RandomCudaTest, LargeTensorsToo) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2});
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const Tensor expected = torch::empty({1001, 4099}, dtype).normal_(0, 1, Generator(3));
      for (const int64_t dim : {0, 1}) {
        const Tensor x = normal(0, 1, {1001, 4099}, mesh, {Shard(dim)}, dtype, Generator(3));
        EXPECT_TRUE(same_bits(full_tensor(x).cpu(), expected)) << dtype << dim;
      }
    }
    const Tensor order = torch::randperm(100'000, at::Generator(Generator(3)), at::TensorOptions(at::kLong));
    EXPECT_TRUE(full_tensor(randperm(100'000, mesh, {Shard(0)}, {}, Generator(3))).cpu().equal(order));
  });
}

// PyTorch's OffsetBasedRNGTracker: a shard begins at its number times the size of the first shard, rounded up to 4; and
// the next draw begins behind the whole tensor.
TEST_F(RandomCudaTest, OffsetBasedDrawsWhatPyTorchsDTensorDraws) {
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cuda", {2, 2});
    const int64_t row = *mesh.coordinate() == Dims{0, 0} || *mesh.coordinate() == Dims{0, 1} ? 0 : 1;
    const int64_t column = world.rank() % 2;
    struct Case {
      Placements placements;
      int64_t shard, first;  // this rank's number, and the elements of the first shard
    };
    // [10, 7] in pieces of 5 or 4 rows and of 4 columns.
    const std::vector<Case> cases = {{{Shard(0), Replicate()}, row, 35},
                                     {{Replicate(), Shard(1)}, column, 40},
                                     {{Shard(0), Shard(1)}, 2 * row + column, 20},
                                     {{Shard(1), Shard(0)}, 2 * column + row, 20},
                                     {{Replicate(), Replicate()}, 0, 70}};
    for (const Case& c : cases) {
      manual_seed(21, RngMode::offset_based);
      Tensor x = zeros({10, 7}, mesh, c.placements);
      uint64_t before = 0;
      for (int draw = 0; draw < 3; ++draw) {
        Tensor expected = torch::zeros_like(to_local(x));
        at::Generator g = torchs(21);
        g.set_offset(before + static_cast<uint64_t>((c.shard * c.first + 3) / 4 * 4));
        if (draw == 1) {
          x.normal_();
          expected.normal_(0, 1, g);
        } else {
          x.uniform_();
          expected.uniform_(0, 1, g);
        }
        EXPECT_TRUE(to_local(x).equal(expected)) << to_string(c.placements) << draw << " rank " << world.rank();
        before += 72;
      }
    }
  });
}

TEST_F(RandomCudaTest, TorchExactDrawsWhatTorchDraws) {
  std::vector<Tensor> expected;
  const at::Generator g = torchs(11);
  Tensor plain = torch::zeros({300, 41}, at::kCUDA);
  expected.push_back(plain.uniform_(-1, 1, g).clone());
  expected.push_back(plain.normal_(1, 2, g).clone());
  expected.push_back(plain.bernoulli_(0.3, g).clone());
  spawn(3, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cuda", {3});
    for (const Placements& p : all_placements(mesh.mesh(), 2, false)) {
      manual_seed(11, RngMode::torch_exact);
      Tensor x = zeros({300, 41}, mesh, p);
      EXPECT_TRUE(full_tensor(x.uniform_(-1, 1)).equal(expected[0])) << to_string(p);
      EXPECT_TRUE(full_tensor(x.normal_(1, 2)).equal(expected[1])) << to_string(p);
      EXPECT_TRUE(full_tensor(x.bernoulli_(0.3)).equal(expected[2])) << to_string(p);
    }
  });
}

TEST_F(RandomCudaTest, AttentionDropsAsOnTheCpu) {
  const Tensor q = numbers_in_unit({4, 4, 6, 8}, at::kDouble);
  spawn(2, [&](World&) {
    const auto attend = [&](const char* device, const Placements& p) {
      const GeneratorScope scope(Generator(8));
      const Tensor x = distribute_tensor(q, init_device_mesh(device, {2}), p);
      return full_tensor(torch::scaled_dot_product_attention(x, x + 1, x * 2, {}, 0.3, true)).cpu();
    };
    const Tensor expected = attend("cpu", {Shard(0)});
    EXPECT_TRUE(attend("cuda", {Shard(0)}).allclose(expected, 1e-12, 1e-12));
    EXPECT_TRUE(attend("cuda", {Shard(1)}).allclose(expected, 1e-12, 1e-12));
  });
}

}  // namespace
}  // namespace sherd::testing
