// TorchScript modules over a mesh compute and train as on one device.

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

using at::Tensor;

Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

torch::jit::Module made() {
  torch::jit::Module module("mlp");
  module.register_parameter("up", numbers({12, 6}, 1).requires_grad_(), false);
  module.register_parameter("bias", numbers({12}, 2).requires_grad_(), false);
  module.register_parameter("down", numbers({4, 12}, 3).requires_grad_(), false);
  module.register_buffer("scale", numbers({6}, 4));
  module.define(R"(
    def forward(self, x):
        hidden = torch.gelu(torch.linear(x * self.scale, self.up, self.bias))
        return torch.softmax(torch.linear(hidden, self.down), -1)
  )");
  return module;
}

// Through a file, as users have them.
torch::jit::Module loaded() {
  static const std::string bytes = [] {
    std::ostringstream out;
    made().save(out);
    return out.str();
  }();
  std::istringstream in(bytes);
  return torch::jit::load(in);
}

std::vector<Tensor> trained(torch::jit::Module& module, const std::function<Tensor(const Tensor&)>& place) {
  std::vector<Tensor> parameters;
  for (const Tensor& parameter : module.parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.5);
  std::vector<Tensor> results;
  for (int step = 0; step < 5; ++step) {  // the executor specialises after some runs
    optimizer.zero_grad();
    const Tensor y = module.forward({place(numbers({8, 6}, step))}).toTensor();
    (y * numbers({8, 4}, 7)).sum().backward();
    optimizer.step();
    results.push_back(is_dtensor(y) ? full_tensor(y.detach()) : y.detach());
  }
  return results;
}

TEST(TorchScript, AModuleTrainsAsOnOneDevice) {
  torch::jit::Module alone = loaded();
  const std::vector<Tensor> expected = trained(alone, [](const Tensor& x) { return x; });
  enum class How { cut, data, full };
  for (const How how : {How::cut, How::data, How::full}) {
    spawn(2, [&](World&) {
      const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"axis"});
      torch::jit::Module module = loaded();
      if (how == How::cut) {
        distribute_module(module, mesh, [](const std::string& name, const Tensor&) -> Placements {
          if (name == "scale") return {Replicate()};
          return {name == "down" ? Shard(1) : Shard(0)};
        });
      } else if (how == How::data) {
        data_parallel(outline_of(module), mesh);
      } else {
        fully_shard(outline_of(module), mesh);
      }
      const auto rows = [&](const Tensor& x) {
        return distribute_tensor(x, mesh, {how == How::cut ? Placement(Replicate()) : Placement(Shard(0))});
      };
      const std::vector<Tensor> got = trained(module, rows);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::allclose(got[i], expected[i], 1e-10, 1e-10)) << static_cast<int>(how) << " step " << i;
      }
      for (const auto& item : module.named_parameters()) EXPECT_TRUE(is_dtensor(item.value)) << item.name;
    });
  }
}

TEST(TorchScript, AModuleIsDistributedOnce) {
  spawn(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"axis"});
    torch::jit::Module module = loaded();
    distribute_module(module, mesh);
    EXPECT_THROW(distribute_module(module, mesh), c10::ValueError);
  });
}

}  // namespace
}  // namespace sherd::testing
