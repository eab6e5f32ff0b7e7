// torch::save of libtorch: what it writes of modules, optimizers and tensors, read without it. The files cpp_*.pt in
// tests/golden/torch_save/ are these, for builds without libtorch: SHERD_GOLDEN_FOLDER=tests/golden/torch_save writes
// them again.

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <sstream>

#include "format/saved.h"
#include "unit/format/bytes.h"

namespace sherd::format {
namespace {

struct Block : torch::nn::Module {
  Block() {
    inner = register_module("inner", torch::nn::Linear(3, 2));
    scale = register_parameter("scale", torch::arange(2.0));
    count = register_buffer("count", torch::tensor(7));
  }
  torch::nn::Linear inner{nullptr};
  torch::Tensor scale;
  torch::Tensor count;
};
struct Net : torch::nn::Module {
  Net() {
    block = register_module("block", std::make_shared<Block>());
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    half = register_module("half", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    half->to(torch::kBFloat16);
    const torch::NoGradGuard guard;
    int64_t first = 0;
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::arange(first, first + parameter.numel()).reshape(parameter.sizes()));
      first += 100;
    }
  }
  std::shared_ptr<Block> block;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear half{nullptr};
};

template <class T>
std::string saved(const T& value) {
  std::ostringstream out;
  torch::save(value, out);
  return out.str();
}

Value read(const std::string& bytes) { return read_saved(MemorySource(test::bytes_of(bytes)), "saved").value; }

TEST(TorchSaveTest, AModuleIsADictOfItsParametersBuffersAndModules) {
  EXPECT_EQ(to_string(read(saved(std::make_shared<Net>())), 10000),
            "{'block': {'scale': tensor f32[2], 'count': tensor i64[], "
            "'inner': {'weight': tensor f32[2, 3], 'bias': tensor f32[2]}}, "
            "'norm': {'weight': tensor f32[2], 'bias': tensor f32[2], 'running_mean': tensor f32[2], "
            "'running_var': tensor f32[2], 'num_batches_tracked': tensor i64[]}, "
            "'half': {'weight': tensor bf16[2, 2]}}");
}

TEST(TorchSaveTest, ATensorKeepsItsElements) {
  const std::string bytes = saved(torch::arange(6).reshape({2, 3}).t());
  const MemorySource source(test::bytes_of(bytes));
  const Saved file = read_saved(source, "saved");
  const auto* tensor = file.value.as<Dict>()->find("0")->as<TensorRef>();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->sizes, (Dims{3, 2}));
  EXPECT_EQ(tensor->strides, (Dims{1, 3}));
  const std::string data = read_record(source, *file.archive.find("data/" + tensor->storage), "saved");
  EXPECT_EQ(data.size(), 48U);
  EXPECT_EQ(data[8 * 4], 4);
}

TEST(TorchSaveTest, SeveralTensorsAndAnOptimizerAreDicts) {
  EXPECT_EQ(to_string(read(saved(std::vector<torch::Tensor>{torch::ones(2), torch::zeros({2, 2})}))),
            "{'0': tensor f32[2], '1': tensor f32[2, 2]}");
  Net net;
  torch::optim::Adam adam(net.block->parameters(), torch::optim::AdamOptions(0.1));
  for (auto& parameter : net.block->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  adam.step();
  const Value value = read(saved(adam));
  const auto* groups = value.as<Dict>()->find("param_groups")->as<Dict>();
  ASSERT_NE(groups, nullptr);
  const auto* group = groups->find("param_groups/0")->as<Dict>();
  EXPECT_EQ(to_string(*group->find("options")),
            "{'lr': 0.1, 'betas': (0.9, 0.999), 'eps': 1e-08, 'weight_decay': 0.0, 'amsgrad': False}");
  EXPECT_EQ(value.as<Dict>()->find("state")->as<Dict>()->items.size(), 3U);
}

}  // namespace
}  // namespace sherd::format
