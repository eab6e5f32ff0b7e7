// Lesson 10: what Python began.
//
// lesson_10_from_python.py trains a model for ten steps, saves it with torch.distributed.checkpoint, trains it for ten
// more and writes these losses down. Here the same model goes on from the same files, in C++, on a mesh that Python did
// not have, and its losses are Python's.
//
//   python examples/lesson_10_from_python.py FOLDER && build/bin/lesson_10_from_python FOLDER

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace nn = torch::nn;

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 2, "usage: lesson_10_from_python FOLDER");
  const std::string folder = argv[1];
  std::ifstream file(folder + "/losses.txt");
  const std::vector<double> python{std::istream_iterator<double>(file), {}};
  TORCH_CHECK(python.size() == 10, "first: python examples/lesson_10_from_python.py ", folder);

  sherd::spawn(4, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    nn::Sequential model(nn::Linear(8, 32), nn::GELU(), nn::Linear(32, 4));
    model->to(torch::kDouble);
    sherd::parallelize_module(model, mesh["tp"], {{"0", sherd::ColwiseParallel()}, {"2", sherd::RowwiseParallel()}});
    sherd::fully_shard(model, mesh["dp"]);
    torch::optim::AdamW optimizer(model->parameters(), 1);  // the learning rate is in the checkpoint

    // The names are Python's: "0.weight", "state.0.weight.exp_avg". Each rank reads the bytes of its own boxes.
    sherd::StateDict state{{"model", sherd::get_model_state_dict(*model)},
                           {"optim", sherd::get_optimizer_state_dict(*model, optimizer)},
                           {"step", 0}};
    sherd::load(state, folder + "/step-10");
    sherd::set_optimizer_state_dict(*model, optimizer, *state["optim"].dict());

    const int64_t first = *state["step"].integer();
    for (int64_t step = first; step < 20; ++step) {
      const auto x = (torch::arange(128, torch::kDouble) * 0.37 + step).sin().view({16, 8});
      const auto rows = sherd::distribute_tensor(x, mesh["dp"], {sherd::Shard(0)});
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model->forward(rows), rows.narrow(1, 0, 4).square());
      loss.backward();
      optimizer.step();
      const double value = sherd::full_tensor(loss).item<double>(), wanted = python[step - first];
      TORCH_CHECK(std::abs(value - wanted) <= 1e-10 * wanted, "step ", step, ": ", value, ", in Python ", wanted);
    }
    if (world.rank() == 0)
      std::cout << "steps " << first + 1 << " to 20 on " << sherd::to_string(mesh) << ": Python's losses, to 1e-10\n";
  });
}

// try: sherd::save(state, folder + "/step-20") at the end, and load it in Python with dcp.load. Which of the two saved?
