// The models of examples/models on meshes of one, two and three axes: losses, gradients and weights of one device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "image_task.h"
#include "sherd/sherd.h"
#include "train.h"

namespace {

using at::Tensor;
using sherd::Placements;

constexpr int kSteps = 20;

Tensor whole(const Tensor& tensor) {
  return sherd::is_dtensor(tensor) ? sherd::full_tensor(tensor.detach()) : tensor.detach();
}

struct Curve {
  std::vector<double> losses;
  std::vector<Tensor> gradients;  // of the first step
  std::vector<Tensor> weights;    // parameters and buffers in the end
};

Curve train(Task& task, const Place& place) {
  Curve curve;
  torch::nn::Module& module = task.module();
  torch::optim::AdamW optimizer(module.parameters(), torch::optim::AdamWOptions(1e-3).eps(1e-5));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = task.loss(step, place);
    loss.backward();
    if (step == 0) {
      for (const Tensor& parameter : module.parameters()) curve.gradients.push_back(whole(parameter.grad()).clone());
    }
    optimizer.step();
    curve.losses.push_back(whole(loss).item<double>());
  }
  for (const Tensor& parameter : module.parameters()) curve.weights.push_back(whole(parameter).clone());
  for (const Tensor& buffer : module.buffers()) curve.weights.push_back(whole(buffer).clone());
  return curve;
}

void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& expected, double bound,
                  const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double scale = 1 + expected[i].abs().max().item<double>();
    EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), bound * scale) << what << " " << i;
  }
}

/// A mesh, the axes of it over which the batch and, if fully sharded, the parameters are cut; axis tp cuts the layers.
struct How {
  std::string mesh;
  std::vector<std::string> data;
  bool fully_sharded = false;
};

/// Trains the tasks, one per rank, and compares rank by rank with `expected`.
void expect_as_alone(const std::vector<std::shared_ptr<Task>>& tasks, const How& how, const Curve& expected,
                     double bound) {
  const sherd::Mesh ranks = sherd::parse_mesh(how.mesh);
  const std::string what = how.mesh + (how.fully_sharded ? ", fully sharded" : "");
  SCOPED_TRACE(what);
  std::vector<Curve> curves(tasks.size());
  sherd::spawn(static_cast<int>(ranks.size()), [&](sherd::World& world) {
    const sherd::DeviceMesh mesh("cpu", ranks);
    Task& task = *tasks[static_cast<size_t>(world.rank())];
    if (ranks.find_axis("tp")) {
      sherd::distribute_module(task.module(), mesh["tp"], [&](const std::string& name, const Tensor&) {
        return Placements(1, task.along_tp(name));
      });
    }
    std::optional<sherd::DeviceMesh> data;
    if (!how.data.empty()) {
      data = mesh[how.data];
      if (how.fully_sharded)
        sherd::fully_shard(task.module(), *data);
      else
        sherd::data_parallel(task.module(), *data);
    }
    curves[static_cast<size_t>(world.rank())] = train(task, [&](const Tensor& rows) {
      if (!data) return rows;
      const Placements cut(static_cast<size_t>(data->ndim()), sherd::Shard(0));
      return sherd::distribute_tensor(rows, *data, cut, {.source = std::nullopt});
    });
  });
  for (const Curve& curve : curves) {
    EXPECT_EQ(curve.losses, curves.front().losses) << "ranks disagree";
    EXPECT_THAT(relative_differences(curve.losses, expected.losses), testing::Each(testing::Le(bound)));
  }
  expect_close(curves.front().gradients, expected.gradients, bound, "gradient");
  expect_close(curves.front().weights, expected.weights, 1e2 * bound, "weight");
}

struct Precision {
  at::ScalarType dtype;
  double bound;
};

class ModelsTest : public testing::TestWithParam<Precision> {
 protected:
  /// `make` draws weights from torch's one generator: all models are made before ranks begin.
  static void check(const std::function<std::shared_ptr<Task>()>& make, std::vector<How> hows) {
    // Meshes matter to float32 no more than to float64: the products are enough.
    if (GetParam().dtype == at::kFloat) hows.erase(hows.begin(), hows.end() - 2);
    const auto alone = make();
    const Curve expected = train(*alone, [](const Tensor& rows) { return rows; });
    ASSERT_LT(expected.losses.back(), 0.9 * expected.losses.front()) << "it does not learn";
    for (const How& how : hows) {
      std::vector<std::shared_ptr<Task>> tasks;
      for (int64_t rank = 0; rank < sherd::parse_mesh(how.mesh).size(); ++rank) tasks.push_back(make());
      expect_as_alone(tasks, how, expected, GetParam().bound);
    }
  }
};

// Two heads of keys and values: [tp=4] cuts through each of them, [tp=3] anywhere; [dp=3] has rows for two ranks alone.
TEST_P(ModelsTest, RotaryGpt) {
  const Corpus corpus(kText);
  const RotaryGptConfig config{.vocabulary = corpus.vocabulary(),
                               .layers = 2,
                               .width = 32,
                               .heads = 4,
                               .kv_heads = 2,
                               .hidden = 88,
                               .length = 16};
  const auto make = [&]() -> std::shared_ptr<Task> {
    return std::make_shared<TextTask<RotaryGpt>>(make_model(config, GetParam().dtype, 3), corpus,
                                                 Rows{.batch = 4, .length = 16});
  };
  check(make, {{"[dp=3]", {"dp"}},
               {"[tp=3]", {}},
               {"[tp=4]", {}},
               {"[dp=4]", {"dp"}, true},
               {"[tp=2, dp=2]", {"dp"}, true},
               {"[dp=2, tp=2]", {"dp"}},
               {"[dp=2, shard=2, tp=2]", {"dp", "shard"}, true}});
}

TEST_P(ModelsTest, ResNet) {
  const ResNetConfig config{.blocks = 1, .width = 4, .classes = 5};
  const ImageOptions images{.size = 8, .classes = 5, .dtype = GetParam().dtype};
  const auto make = [&]() -> std::shared_ptr<Task> {
    return std::make_shared<ImageTask>(make_resnet(config, GetParam().dtype, 3), 6, 3, images);
  };
  check(make, {{"[dp=2]", {"dp"}},
               {"[dp=4]", {"dp"}, true},
               {"[tp=3]", {}},
               {"[tp=2, dp=2]", {"dp"}, true},
               {"[dp=2, tp=2]", {"dp"}},
               {"[dp=2, shard=2, tp=2]", {"dp", "shard"}, true}});
}

INSTANTIATE_TEST_SUITE_P(Types, ModelsTest, testing::Values(Precision{at::kDouble, 1e-10}, Precision{at::kFloat, 1e-4}),
                         [](const auto& each) { return each.param.dtype == at::kDouble ? "Float64" : "Float32"; });

// Every convolution cut by its output channels: the next one gathers what it reads.
TEST(ResNetTest, EveryConvolutionByItsOutputChannels) {
  const auto image = [] { return make_images(0, 4, 1, {.size = 8, .classes = 3, .dtype = at::kDouble}); };
  const ResNetConfig config{.width = 4, .classes = 3};
  ResNet alone = make_resnet(config, at::kDouble, 7);
  const Tensor expected = alone->loss(image().images, image().classes);
  expected.backward();
  for (const int ranks : {2, 3}) {
    std::vector<ResNet> models;
    for (int rank = 0; rank < ranks; ++rank) models.push_back(make_resnet(config, at::kDouble, 7));
    sherd::spawn(ranks, [&](sherd::World& world) {
      const auto mesh = sherd::init_device_mesh("cpu", {ranks}, {"tp"});
      ResNet& model = models[static_cast<size_t>(world.rank())];
      sherd::distribute_module(model, mesh, [](const std::string&, const Tensor& tensor) {
        return tensor.dim() == 4 ? Placements(1, sherd::Shard(0)) : Placements(1, sherd::Replicate());
      });
      const Tensor loss = model->loss(image().images, image().classes);
      loss.backward();
      EXPECT_NEAR(whole(loss).item<double>(), expected.item<double>(), 1e-10);
      for (size_t i = 0; i < alone->parameters().size(); ++i) {
        expect_close({whole(model->parameters()[i].grad())}, {alone->parameters()[i].grad()}, 1e-10, "gradient");
      }
    });
  }
}

TEST(ImagesTest, AreTheSameForEveryCaller) {
  const ImageOptions options{.size = 8, .classes = 5};
  const ImageBatch one = make_images(3, 64, 1, options), same = make_images(3, 64, 1, options);
  EXPECT_TRUE(one.images.equal(same.images));
  EXPECT_FALSE(one.images.equal(make_images(4, 64, 1, options).images));
  EXPECT_EQ(std::get<0>(at::_unique(one.classes)).numel(), 5) << "a class is missing";
  EXPECT_LT(one.images.mean().abs().item<double>(), 0.1);
}

}  // namespace
