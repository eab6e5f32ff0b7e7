#include "training.h"

#include <memory>
#include <utility>
#include <vector>

#include "sherd/clip_grad.h"
#include "sherd/data_parallel.h"
#include "sherd/dtensor.h"
#include "sherd/fused_step.h"
#include "sherd/model_state.h"
#include "sherd/parallel.h"
#include "sherd/random.h"

namespace {

torch::optim::AdamWOptions optimizer_options(const TrainingOptions& options) {
  return torch::optim::AdamWOptions(options.learning_rate).weight_decay(0.01);
}

std::vector<at::Tensor> moved_parameters(torch::nn::Module& module, at::Device device) {
  module.to(device);
  return module.parameters();
}

}  // namespace

sherd::Placements batch_placements(const sherd::Mesh& mesh) {
  sherd::Placements placements(static_cast<size_t>(mesh.ndim()), sherd::Replicate());
  if (const auto dp = mesh.find_axis("dp")) placements[static_cast<size_t>(*dp)] = sherd::Shard(0);
  return placements;
}

Training::Training(std::shared_ptr<Task> task, const TrainingOptions& options, at::Device device)
    : task_(std::move(task)),
      options_(options),
      device_(device),
      optimizer_(moved_parameters(task_->module(), device), optimizer_options(options)) {}

// An optimizer may be made before the parameters are distributed: they stay the same tensors.
Training::Training(std::shared_ptr<Task> task, const TrainingOptions& options, const sherd::DeviceMesh& mesh)
    : Training(std::move(task), options, mesh.device()) {
  mesh_ = mesh;
  if (const auto tp = mesh.mesh().find_axis("tp")) {
    const bool cuts = mesh.size(*tp) > 1;
    sherd::distribute_module(module(), mesh["tp"], [&](const std::string& name, const at::Tensor&) {
      return sherd::Placements(1, cuts ? task_->along_tp(name) : sherd::Replicate());
    });
  }
  if (mesh.mesh().find_axis("dp")) {
    sherd::FullyShardOptions sharding;
    if (options_.uses_bfloat16) sharding.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    if (options_.fully_sharded)
      sherd::fully_shard(module(), mesh["dp"], sharding);
    else
      sherd::data_parallel(module(), mesh["dp"]);
  }
}

at::Tensor Training::placed(const at::Tensor& rows) const {
  const auto local = rows.to(device_);
  if (!mesh_) return local;
  // Every rank has drawn the same batch: each cuts out its rows and nothing is sent.
  return sherd::distribute_tensor(local, *mesh_, batch_placements(mesh_->mesh()), {.source = std::nullopt});
}

at::Tensor Training::advance() {
  set_learning_rate();
  optimizer_.zero_grad();
  const auto loss = task_->loss(steps_++, [this](const at::Tensor& rows) { return placed(rows); });
  loss.backward();
  if (options_.clip) gradient_norm_ = sherd::clip_grad_norm_(module().parameters(), *options_.clip);
  if (options_.fuses_step)
    sherd::fused_step(optimizer_);
  else
    optimizer_.step();
  return loss.detach();
}

double Training::value_of(const at::Tensor& loss) {
  return (sherd::is_dtensor(loss) ? sherd::full_tensor(loss) : loss).item<double>();
}

void Training::set_learning_rate() {
  const int64_t step = steps_ + 1;
  const double share = step < options_.warmup ? static_cast<double>(step) / static_cast<double>(options_.warmup) : 1;
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(share * options_.learning_rate);
}

std::vector<sherd::MemoryPart> Training::memory() const {
  sherd::MemoryPart parameters{"parameters", {}}, gradients{"gradients", {}}, state{"optimizer", {}};
  for (const auto& parameter : task_->module().parameters()) {
    parameters.tensors.push_back(parameter);
    gradients.tensors.push_back(parameter.grad());
  }
  for (const auto& [parameter, moments] : optimizer_.state()) {
    const auto& of_one = static_cast<const torch::optim::AdamWParamState&>(*moments);
    state.tensors.insert(state.tensors.end(), {of_one.exp_avg(), of_one.exp_avg_sq()});
  }
  return {parameters, gradients, state};
}

sherd::StateDict Training::state() {
  return {{"model", sherd::get_model_state_dict(module())},
          {"optimizer", sherd::get_optimizer_state_dict(module(), optimizer_)},
          {"step", steps_},
          {"generator", sherd::get_generator_state(sherd::default_generator())}};
}

void Training::go_on_from(const sherd::StateDict& state) {
  // The tensors of the model and of the optimizer are filled already; numbers are not.
  sherd::set_optimizer_state_dict(module(), optimizer_, *state.at("optimizer").dict());
  steps_ = *state.at("step").integer();
  auto generator = sherd::default_generator();
  sherd::set_generator_state(generator, *state.at("generator").tensor());
}
