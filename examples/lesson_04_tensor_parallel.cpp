// Lesson 4: tensor parallel.
//
// A layer that is too wide for one device is cut. Two layers in a row are cut so that they fit: the first by its
// outputs (colwise), the second by its inputs (rowwise). What lies between them stays cut, and one all_reduce at the
// end makes the result. That is how every large language model is cut (Megatron, 2019).

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
  nn::Sequential alone(nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 4));
  const auto start = alone->clone();  // rank threads share torch's generator: they copy weights, and draw none

  std::vector<double> expected;
  torch::optim::AdamW optimizer(alone->parameters(), 1e-2);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(alone->forward(x), wanted);
    loss.backward();
    optimizer.step();
    expected.push_back(loss.item<double>());
  }

  sherd::spawn(4, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {4}, {"tp"});
    nn::Sequential model(std::dynamic_pointer_cast<nn::SequentialImpl>(start->clone()));
    sherd::parallelize_module(model, mesh["tp"], {{"0", sherd::ColwiseParallel()}, {"2", sherd::RowwiseParallel()}});

    torch::optim::AdamW own(model->parameters(), 1e-2);  // torch's own, on a quarter of the weights
    for (int step = 0; step < 5; ++step) {
      own.zero_grad();
      sherd::CommRecorder recorder;
      const auto y = model->forward(x);
      const std::string sent = recorder.to_string();
      const auto loss = torch::mse_loss(y, wanted);
      loss.backward();
      own.step();

      const double value = sherd::full_tensor(loss).item<double>();
      TORCH_CHECK(std::abs(value - expected[step]) < 1e-5, "step ", step, ": ", value, ", alone ", expected[step]);
      if (world.rank() == 0 && step == 0) std::cout << "forward sends: " << sent;
    }
    if (world.rank() != 0) return;
    std::cout << "five steps with the losses of one device\n";
    for (const auto& each : model->named_parameters())
      std::cout << each.key() << "  " << sherd::to_string(each.value()) << "\n";
  });
}

// try: ColwiseParallel for both layers. The result is right; what does forward send now?
