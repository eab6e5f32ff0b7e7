// Trains the model of continue_training.py from the state in one file and leaves its state in another, any number of
// times:
//
//   continue_training Adam 2 before.pt after.pt SGD 1 ...
//
// Everything about the optimizer but its class comes from the state. `generator 0 before.pt after.pt` draws numbers
// instead.

#include <torch/torch.h>

#include <cstdlib>

#include "sherd/checkpoint.h"
#include "sherd/model_state.h"

namespace {

using at::Tensor;
namespace nn = torch::nn;
namespace optim = torch::optim;

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const nn::Sequential& model) {
  const std::vector<Tensor> p = model->parameters();
  if (name == "LBFGS") return std::make_unique<optim::LBFGS>(p);
  const std::vector<optim::OptimizerParamGroup> groups = {std::vector<Tensor>{p[0], p[1], p[2], p[3]},
                                                          std::vector<Tensor>{p[4], p[5]}};
  if (name == "SGD") return std::make_unique<optim::SGD>(groups, optim::SGDOptions(7));
  if (name == "Adam") return std::make_unique<optim::Adam>(groups);
  if (name == "AdamW") return std::make_unique<optim::AdamW>(groups);
  if (name == "Adagrad") return std::make_unique<optim::Adagrad>(groups);
  if (name == "RMSprop") return std::make_unique<optim::RMSprop>(groups);
  throw std::invalid_argument("continue_training: no optimizer " + name);
}

void train(nn::Sequential& model, optim::Optimizer& optimizer, int steps) {
  const Tensor x = torch::arange(64, torch::kDouble).cos().view({16, 4});
  const Tensor y = torch::arange(32, torch::kDouble).sin().view({16, 2});
  for (int i = 0; i < steps; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      Tensor loss = (model->forward(x) - y).pow(2).mean();
      loss.backward();
      return loss;
    });
  }
}

void run(const std::string& name, int steps, const std::string& from, const std::string& to) {
  nn::Sequential model(nn::BatchNorm1d(4), nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 2));
  const auto optimizer = make_optimizer(name, model);
  const sherd::StateDict before = sherd::load_state_dict(from);
  const sherd::StateDict& state = *before.at("optim").dict();
  sherd::set_model_state_dict(*model, *before.at("model").dict());
  // Before its first step a Python optimizer says nothing of parameters.
  const bool begins = state.contains("param_groups") && !state.contains("state");
  sherd::set_optimizer_state_dict(*model, *optimizer, state, {.strict = !begins});
  train(model, *optimizer, steps);
  sherd::save(
      {{"model", sherd::get_model_state_dict(*model)}, {"optim", sherd::get_optimizer_state_dict(*model, *optimizer)}},
      to);
}

// Numbers that go on from the state of a generator, and the state after them.
void draw(const std::string& from, const std::string& to) {
  const at::Generator generator = at::detail::createCPUGenerator();
  sherd::set_generator_state(generator, *sherd::load_state_dict(from).at("rng").tensor());
  const Tensor drawn = torch::rand({8}, generator, torch::kFloat);
  sherd::save({{"drawn", drawn}, {"rng", sherd::get_generator_state(generator)}}, to);
}

}  // namespace

int main(int argc, char** argv) {
  // Not model->to(), which turns the number of batches into a real one.
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  for (int i = 1; i + 3 < argc; i += 4) {
    if (std::string(argv[i]) == "generator") {
      draw(argv[i + 2], argv[i + 3]);
    } else {
      run(argv[i], std::atoi(argv[i + 1]), argv[i + 2], argv[i + 3]);
    }
  }
}
