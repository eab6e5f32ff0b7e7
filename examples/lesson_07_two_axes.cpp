// Lesson 7: two axes.
//
// Placements compose. On a mesh [dp, tp] the layers are cut over tp, the batch and what a rank keeps of the weights
// over dp. Each call takes its own axis of the mesh and does not know of the other; the losses are those of one device,
// whatever the shape of the mesh.

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace nn = torch::nn;

int main() {
  torch::manual_seed(1);
  const auto x = torch::randn({16, 8}), wanted = torch::randn({16, 4});
  nn::Sequential start(nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 4));

  std::vector<double> first;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 1}, {4, 1}, {2, 2}, {1, 4}}) {
    std::vector<double> losses;
    sherd::spawn(static_cast<int>(shape[0] * shape[1]), [&](sherd::World& world) {
      const auto mesh = sherd::init_device_mesh("cpu", shape, {"dp", "tp"});
      nn::Sequential model(std::dynamic_pointer_cast<nn::SequentialImpl>(start->clone()));
      sherd::parallelize_module(model, mesh["tp"], {{"0", sherd::ColwiseParallel()}, {"2", sherd::RowwiseParallel()}});
      sherd::fully_shard(model, mesh["dp"]);

      // The batch is on one axis, the parameters are on two. Where they meet, each counts as whole on what it lacks.
      const auto rows = sherd::distribute_tensor(x, mesh["dp"], {sherd::Shard(0)});
      const auto targets = sherd::distribute_tensor(wanted, mesh["dp"], {sherd::Shard(0)});
      torch::optim::AdamW optimizer(model->parameters(), 1e-2);
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        const auto loss = torch::mse_loss(model->forward(rows), targets);
        loss.backward();
        sherd::clip_grad_norm_(model->parameters(), 1.0);  // the norm of all gradients on all ranks
        optimizer.step();
        const double value = sherd::full_tensor(loss).item<double>();
        if (world.rank() == 0) losses.push_back(value);
      }
      // The first weight: tp has cut its rows, and dp cuts each of the pieces once more (split).
      if (world.rank() == 0) std::cout << sherd::visualize(model->parameters()[0]) << "\n";
    });
    if (first.empty()) first = losses;
    for (int step = 0; step < 5; ++step) TORCH_CHECK(std::abs(losses[step] - first[step]) < 1e-5);
  }
  std::cout << "the same losses on all four\n";
}

// try: a third axis. fully_shard(model, mesh[{"replica", "dp"}]) shards over dp and keeps a copy for each replica.
