// Lesson 5: data parallel.
//
// Every rank has the whole model and some rows of the batch. The batch is one DTensor, its mean is the mean of all
// rows, and so the gradient is that of one device: nobody divides by the number of ranks.

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>
#include <string>

namespace nn = torch::nn;

int main() {
  torch::manual_seed(1);
  const auto x = torch::randn({10, 8}), wanted = torch::randn({10, 4});
  nn::Sequential alone(nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 4));
  const auto start = alone->clone();
  torch::mse_loss(alone->forward(x), wanted).backward();

  sherd::spawn(4, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {4}, {"dp"});
    nn::Sequential model(std::dynamic_pointer_cast<nn::SequentialImpl>(start->clone()));
    const auto gradients = sherd::data_parallel(model, mesh["dp"]);

    // Ten rows on four ranks: 3, 3, 3 and 1. Each row counts the same, whoever has it.
    const auto rows = sherd::distribute_tensor(x, mesh, {sherd::Shard(0)});
    const auto targets = sherd::distribute_tensor(wanted, mesh, {sherd::Shard(0)});
    sherd::CommRecorder recorder;
    torch::mse_loss(model->forward(rows), targets).backward();
    const std::string sent = recorder.to_string();
    const auto expect_gradients_of_one_device = [&] {
      for (size_t i = 0; i < model->parameters().size(); ++i) {
        const auto gradient = sherd::full_tensor(model->parameters()[i].grad());
        TORCH_CHECK(torch::allclose(gradient, alone->parameters()[i].grad(), 1e-4, 1e-6));
      }
    };
    expect_gradients_of_one_device();

    // Gradients of several batches add up. While they do, nothing needs to be sent: the last one sends for all.
    model->zero_grad();
    sherd::CommRecorder quiet;
    {
      const auto wait = gradients.no_sync();
      torch::mse_loss(model->forward(rows), targets).div(2).backward();
    }
    TORCH_CHECK(quiet.calls().empty());
    torch::mse_loss(model->forward(rows), targets).div(2).backward();
    expect_gradients_of_one_device();

    const auto held = sherd::all_gather_text(world.group(), std::to_string(sherd::to_local(rows).size(0)));
    if (world.rank() != 0) return;
    std::cout << "rows on each rank:";
    for (const auto& each : held) std::cout << " " << each;
    std::cout << "\none pass sends\n" << sent << "the gradient is that of one device\n";
  });
}

// try: BatchNorm1d(32) after the first layer. Its mean and variance are those of all ten rows: is the gradient still
// that of one device?
