// Lesson 9: save on one mesh, go on on another.
//
// A checkpoint holds tensors, not ranks. It is written by the ranks that have the boxes and read by those that want
// them; the mesh, the placements and the number of ranks may all be others. A run that was interrupted has the losses
// of one that never was.

#include <sherd/sherd.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace nn = torch::nn;

int main() {
  torch::manual_seed(1);
  const auto x = torch::randn({16, 8}), wanted = torch::randn({16, 4});
  nn::Sequential start(nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 4));
  const std::string folder = std::filesystem::temp_directory_path() / ("lesson-09-" + std::to_string(getpid()));

  // Steps up to `until`, from the newest checkpoint that is there, or from the start; saves at the end.
  const auto train = [&](std::vector<int64_t> shape, int64_t until, const std::string& path) {
    std::vector<double> losses;
    sherd::spawn(static_cast<int>(shape[0] * shape[1]), [&](sherd::World& world) {
      const auto mesh = sherd::init_device_mesh("cpu", shape, {"dp", "tp"});
      nn::Sequential model(std::dynamic_pointer_cast<nn::SequentialImpl>(start->clone()));
      sherd::parallelize_module(model, mesh["tp"], {{"0", sherd::ColwiseParallel()}, {"2", sherd::RowwiseParallel()}});
      sherd::fully_shard(model, mesh["dp"]);
      torch::optim::AdamW optimizer(model->parameters(), 1e-2);

      sherd::CheckpointManager checkpoints(path);
      const int64_t done = checkpoints.resume(model, optimizer).value_or(0);
      const auto rows = sherd::distribute_tensor(x, mesh["dp"], {sherd::Shard(0)});
      const auto targets = sherd::distribute_tensor(wanted, mesh["dp"], {sherd::Shard(0)});
      for (int64_t step = done; step < until; ++step) {
        optimizer.zero_grad();
        const auto loss = torch::mse_loss(model->forward(rows), targets);
        loss.backward();
        optimizer.step();
        const double value = sherd::full_tensor(loss).item<double>();
        if (world.rank() == 0) losses.push_back(value);
      }
      checkpoints.save(until, model, optimizer);
      if (world.rank() == 0)
        std::cout << sherd::to_string(mesh) << ": steps " << done + 1 << " to " << until << ", saved to step-" << until
                  << "\n";
    });
    return losses;
  };

  const auto expected = train({1, 1}, 10, folder + "/never_stopped");
  auto losses = train({2, 2}, 4, folder + "/stopped");
  for (const auto& more : {train({3, 1}, 7, folder + "/stopped"), train({1, 4}, 10, folder + "/stopped")})
    losses.insert(losses.end(), more.begin(), more.end());
  for (size_t step = 0; step < expected.size(); ++step) TORCH_CHECK(std::abs(losses[step] - expected[step]) < 1e-5);
  std::cout << "the losses of a run that never stopped\n";
  std::filesystem::remove_all(folder);
}

// try: leave the folder, and look at it with `sherd ls` and `sherd inspect`. Or flip a byte in the newest checkpoint:
// resume() then takes the one before.
