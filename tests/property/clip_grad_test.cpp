// Gradients clipped on a mesh are those clipped on one device, and so is the norm.

#include "sherd/clip_grad.h"

#include <limits>

#include "error/rank_errors.h"
#include "property/training_tools.h"

namespace sherd::testing {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

torch::nn::Sequential with_gradients(torch::nn::Sequential model, const Tensor& batch) {
  output_of(model, batch).pow(2).sum().backward();
  return model;
}

TEST(ClipGradTest, NormIsThatOfOneDevice) {
  const Tensor batch = numbers({5, 5}, 3);
  for (const double order : {2.0, 1.0, 3.0, 0.5, kInfinity, -kInfinity}) {
    for (const double max_norm : {0.25, 1e6}) {
      const torch::nn::Sequential dense = with_gradients(make_mlp(), batch);
      std::vector<Tensor> norms;
      for (const Tensor& gradient : gradients_of(dense)) norms.push_back(torch::linalg_vector_norm(gradient, order));
      const Tensor expected = torch::linalg_vector_norm(torch::stack(norms), order);
      torch::nn::utils::clip_grad_norm_(dense->parameters(), max_norm, order);
      on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
        const auto model = with_gradients(make_mlp(mesh, placed_as), distribute_batch(batch, mesh, placed_as));
        const Tensor norm = clip_grad_norm_(model->parameters(), max_norm, order);
        EXPECT_FALSE(is_dtensor(norm));
        expect_close(norm, expected, "norm");
        expect_all_close(gradients_of(model), gradients_of(dense), "gradient");
      });
    }
  }
}

// A parameter with this gradient.
Tensor with_gradient(const Tensor& gradient) {
  Tensor parameter = torch::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(ClipGradTest, MeshesAndPlainTensorsTogether) {
  const std::vector<Tensor> gradients = {numbers({5, 4}), numbers({3}, 1), numbers({6}, 2), numbers({2, 3}, 3),
                                         numbers({1}, 4)};
  const Tensor expected =
      torch::cat({gradients[0].view(-1), gradients[1], gradients[2], gradients[3].view(-1), gradients[4]}).norm();
  spawn(4, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto on = [&](const Tensor& gradient, const DeviceMesh& where, Placements placements) {
      return with_gradient(distribute_tensor(gradient, where, std::move(placements)));
    };
    const std::vector<Tensor> parameters = {on(gradients[0], mesh, {Shard(0), Shard(1)}),
                                            with_gradient(gradients[1].clone()),
                                            on(gradients[2], mesh["dp"], {Shard(0)}),
                                            on(gradients[3], mesh["tp"], {Replicate()}),
                                            on(gradients[4], mesh, {Shard(0), Replicate()}),
                                            torch::zeros({3}).requires_grad_(),  // without a gradient
                                            Tensor()};
    CommRecorder recorder;
    const Tensor norm = clip_grad_norm_(parameters, 0.5);
    EXPECT_EQ(recorder.calls().size(), 3U) << "one call for each mesh\n" << recorder.to_string();
    EXPECT_LE(recorder.bytes(), 3 * 3 * 2 * 3 * 8);
    expect_close(norm, expected, "norm");
    const double scale = 0.5 / (expected.item<double>() + 1e-6);
    for (size_t i = 0; i < gradients.size(); ++i) {
      expect_close(parameters[i].grad(), gradients[i] * scale, "gradient " + std::to_string(i));
    }
  });
}

TEST(ClipGradTest, HalfPrecisionIsAddedUpInFloat) {
  const Tensor gradient = torch::full({4096}, 0.01, torch::kBFloat16);
  const double expected = gradient.to(torch::kDouble).norm().item<double>();
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    const Tensor norm = clip_grad_norm_({with_gradient(distribute_tensor(gradient, mesh, {Shard(0)}))}, 1.0);
    EXPECT_EQ(norm.scalar_type(), torch::kFloat);
    EXPECT_NEAR(norm.item<double>(), expected, 1e-6);
  });
}

// Stages of a pipeline hold different parameters.
TEST(ClipGradTest, AcrossRanksWithOtherParameters) {
  spawn(2, [&](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"pp"});
    const Tensor mine = with_gradient(torch::full({1}, mesh.local_rank("pp") == 0 ? 3.0 : 4.0, torch::kDouble));
    expect_close(clip_grad_norm_({mine}, 10.0, {.across = {mesh.group("pp")}}), torch::tensor(5.0, torch::kDouble), "");
    expect_close(clip_grad_norm_({mine}, 10.0, {.norm_type = kInfinity, .across = {mesh.group("pp")}}),
                 torch::tensor(4.0, torch::kDouble), "");
  });
}

TEST(ClipGradTest, NothingToClip) {
  EXPECT_EQ(clip_grad_norm_({}, 1.0).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({torch::zeros({2}).requires_grad_()}, 1.0).item<double>(), 0);
}

TEST(ClipGradTest, ANormThatIsNotFinite) {
  const auto errors = errors_of_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"dp"});
    Tensor gradient = torch::ones({4}, torch::kDouble);
    gradient[3] = kInfinity;  // on the second rank
    const Tensor parameter = with_gradient(distribute_tensor(gradient, mesh, {Shard(0)}));
    EXPECT_EQ(clip_grad_norm_({with_gradient(distribute_tensor(gradient, mesh, {Shard(0)}))}, 1.0).item<double>(),
              kInfinity);
    clip_grad_norm_({parameter}, 1.0, {.error_if_nonfinite = true});
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(
        error,
        "clip_grad_norm_: the norm of the gradients is not finite\n"
        "  norm: inf\n"
        "  help: leave error_if_nonfinite away to clip them all the same; sherd::GradScaler skips the steps of half "
        "precision that overflow");
  }
}

TEST(ClipGradTest, Values) {
  const Tensor batch = numbers({5, 5}, 3);
  const torch::nn::Sequential dense = with_gradients(make_mlp(), batch);
  torch::nn::utils::clip_grad_value_(dense->parameters(), 0.3);
  on_every_arrangement([&](const DeviceMesh& mesh, const Arrangement& placed_as) {
    const auto model = with_gradients(make_mlp(mesh, placed_as), distribute_batch(batch, mesh, placed_as));
    clip_grad_value_(model->parameters(), 0.3);
    expect_all_close(gradients_of(model), gradients_of(dense), "gradient");
  });
}

}  // namespace
}  // namespace sherd::testing
