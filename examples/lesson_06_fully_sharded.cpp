// Lesson 6: fully sharded.
//
// Data parallel keeps the whole model on every rank, its gradients, and two more numbers per weight for AdamW. Fully
// sharded, a rank keeps its part of all that. A layer's weights are gathered when the layer runs, and forgotten; its
// gradient is reduced to the parts (FSDP, ZeRO-3).

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

namespace nn = torch::nn;

int64_t bytes_here(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& each : tensors) bytes += static_cast<int64_t>(sherd::to_local(each).nbytes());
  return bytes;
}

int main() {
  torch::manual_seed(1);
  const auto x = torch::randn({16, 32}), wanted = torch::randn({16, 32});
  nn::Sequential start(nn::Linear(32, 64), nn::GELU(), nn::Linear(64, 64), nn::GELU(), nn::Linear(64, 32));

  sherd::spawn(4, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {4}, {"dp"});
    const auto rows = sherd::distribute_tensor(x, mesh, {sherd::Shard(0)});
    const auto targets = sherd::distribute_tensor(wanted, mesh, {sherd::Shard(0)});
    std::vector<double> losses;
    for (const bool sharded : {false, true}) {
      nn::Sequential model(std::dynamic_pointer_cast<nn::SequentialImpl>(start->clone()));
      if (sharded)
        sherd::fully_shard(model, mesh["dp"]);
      else
        sherd::data_parallel(model, mesh["dp"]);

      torch::optim::AdamW optimizer(model->parameters(), 1e-2);  // its state lies as the parameters do
      sherd::CommRecorder recorder;
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        const auto loss = torch::mse_loss(model->forward(rows), targets);
        loss.backward();
        optimizer.step();
        losses.push_back(sherd::full_tensor(loss).item<double>());
      }
      if (world.rank() != 0) continue;
      int64_t gathers = 0;
      for (const auto& call : recorder.calls()) gathers += call.name.starts_with("all_gather") ? 1 : 0;
      std::cout << (sharded ? "fully sharded: " : "data parallel: ") << bytes_here(model->parameters())
                << " bytes of weights on rank 0, " << (gathers > 0 ? "gathered when they are used" : "never gathered")
                << "\n  " << sherd::to_string(model->parameters()[0]) << "\n";
    }
    for (int step = 0; step < 5; ++step) TORCH_CHECK(std::abs(losses[step] - losses[step + 5]) < 1e-5);
    if (world.rank() == 0) std::cout << "the same losses\n";
  });
}

// try: {.reshard_after_forward = false} as the third argument of fully_shard, and count the gathers of one step with
// and without it. What does it cost?
