#include "cases.h"

#include "sherd/dtensor.h"
#include "sherd/parallel.h"

namespace {

struct Operands {
  at::Tensor x, y, w, gain, shift;
};

Operands draw_operands(int64_t rows, at::Device device) {
  const auto options = at::TensorOptions(device);
  return {torch::rand({rows, 8}, options), torch::rand({rows, 8}, options), torch::rand({8, 8}, options),
          torch::rand({8}, options), torch::rand({8}, options)};
}

std::vector<Operator> operators(const Operands& operands) {
  const auto [x, y, w, gain, shift] = operands;
  // An in-place sum of its own: a tensor that grows for a hundred thousand calls is no operand for the others.
  const at::Tensor total = x.clone();
  const int64_t rows = x.size(0);
  return {
      {"add", [x, y] { at::add(x, y); }},
      {"add_", [total, y] { total.add_(y); }},
      {"mul", [x, y] { at::mul(x, y); }},
      {"mm", [x, w] { at::mm(x, w); }},
      {"relu", [x] { at::relu(x); }},
      {"layer_norm", [x, gain, shift] { at::layer_norm(x, {8}, gain, shift); }},
      {"view",
       [x, rows] {
         x.view({rows, 2, 4});
       }},
      {"transpose", [x] { x.transpose(0, 1); }},
      {"sum", [x] { x.sum(1); }},
      {"softmax", [x] { at::softmax(x, 1); }},
      {"cat",
       [x, y] {
         at::cat({x, y}, 1);
       }},
  };
}

struct Mlp : torch::nn::Module {
  // The same weights each time: how long a step takes depends on them (zeros and tiny numbers are slow to take roots
  // of).
  explicit Mlp(at::Device device) {
    torch::manual_seed(0);
    up = register_module("up", torch::nn::Linear(torch::nn::LinearOptions(16, 16).bias(false)));
    down = register_module("down", torch::nn::Linear(torch::nn::LinearOptions(16, 16).bias(false)));
    to(device);
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::relu(up(x))); }

  torch::nn::Linear up{nullptr}, down{nullptr};
};

std::function<void()> training_step(const std::shared_ptr<Mlp>& model, const at::Tensor& batch) {
  auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-3));
  return [model, optimizer, batch] {
    optimizer->zero_grad();
    model->forward(batch).sum().backward();
    optimizer->step();
  };
}

}  // namespace

std::vector<Operator> local_operators(int64_t rows, at::Device device) {
  return operators(draw_operands(rows, device));
}

std::vector<Operator> sharded_operators(int64_t rows, const sherd::DeviceMesh& mesh) {
  const Operands local = draw_operands(rows, mesh.device());
  const auto sharded = [&](const at::Tensor& tensor) {
    return sherd::from_local(tensor, mesh, {sherd::Shard(0)}, {.shape = sherd::Dims{mesh.size() * rows, 8}});
  };
  const auto replicated = [&](const at::Tensor& tensor) {
    return sherd::from_local(tensor, mesh, {sherd::Replicate()});
  };
  return operators(
      {sharded(local.x), sharded(local.y), replicated(local.w), replicated(local.gain), replicated(local.shift)});
}

std::vector<Case> make_cases(const sherd::DeviceMesh& mesh) {
  std::vector<Case> cases;
  {
    torch::NoGradGuard no_grad;
    const auto local = local_operators(8, mesh.device());
    const auto sharded = sharded_operators(8, mesh);
    for (size_t i = 0; i < local.size(); ++i)
      cases.push_back({.name = local[i].name, .local = local[i].run, .sharded = sharded[i].run});
  }
  const auto plain = std::make_shared<Mlp>(mesh.device());
  const auto parallel = std::make_shared<Mlp>(mesh.device());
  sherd::distribute_module(*parallel, mesh);
  const auto batch = torch::rand({8, 16}, at::TensorOptions(mesh.device()));
  cases.push_back({.name = "step",
                   .gradients = true,
                   .local = training_step(plain, batch),
                   .sharded = training_step(parallel, sherd::from_local(batch, mesh, {sherd::Replicate()}))});
  return cases;
}
