#include "train.h"

#include <algorithm>
#include <cmath>

#include "sherd/clip_grad.h"
#include "sherd/data_parallel.h"
#include "sherd/dtensor.h"
#include "sherd/model_state.h"
#include "sherd/parallel.h"
#include "sherd/random.h"

namespace {

torch::optim::AdamWOptions optimizer_options(const TrainOptions& options) {
  return torch::optim::AdamWOptions(options.learning_rate).weight_decay(0.01);
}

std::vector<at::Tensor> moved_parameters(Gpt& model, at::Device device) {
  model->to(device);
  return model->parameters();
}

// "blocks.0.attention.query.weight" ends with "query.weight".
bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return name.ends_with(ending); });
}

}  // namespace

Gpt make_model(const TrainOptions& options) {
  torch::manual_seed(options.seed);
  Gpt model(options.model);
  model->to(options.dtype);
  return model;
}

Gpt copy_model(const Gpt& model, const TrainOptions& options) {
  Gpt copy(options.model);
  copy->to(options.dtype);
  torch::NoGradGuard no_grad;
  auto parameters = copy->named_parameters();
  for (const auto& parameter : model->named_parameters()) parameters[parameter.key()].copy_(parameter.value());
  return copy;
}

sherd::Placements parameter_placements(const sherd::Mesh& mesh, const std::string& name) {
  sherd::Placements placements(static_cast<size_t>(mesh.ndim()), sherd::Replicate());
  const auto tp = mesh.find_axis("tp");
  if (!tp || mesh.size(*tp) == 1) return placements;
  auto& along_tp = placements[static_cast<size_t>(*tp)];
  const bool has_cut_outputs = ends_with_any(name, {"query.weight", "key.weight", "value.weight", "up.weight",
                                                    "query.bias", "key.bias", "value.bias", "up.bias"});
  const bool has_cut_inputs = ends_with_any(name, {"out.weight", "down.weight"});
  if (has_cut_outputs) along_tp = sherd::Shard(0);
  if (has_cut_inputs) along_tp = sherd::Shard(1);
  return placements;
}

sherd::Placements batch_placements(const sherd::Mesh& mesh) {
  sherd::Placements placements(static_cast<size_t>(mesh.ndim()), sherd::Replicate());
  if (const auto dp = mesh.find_axis("dp")) placements[static_cast<size_t>(*dp)] = sherd::Shard(0);
  return placements;
}

Trainer::Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, at::Device device)
    : model_(std::move(model)),
      corpus_(corpus),
      options_(options),
      device_(device),
      optimizer_(moved_parameters(model_, device), optimizer_options(options)) {}

// An optimizer may be made before the parameters are distributed: they stay the same tensors.
Trainer::Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, const sherd::DeviceMesh& mesh)
    : Trainer(std::move(model), corpus, options, mesh.device()) {
  mesh_ = mesh;
  if (mesh.mesh().find_axis("tp")) {
    const auto tp = mesh["tp"];
    sherd::distribute_module(
        model_, tp, [&](const std::string& name, const at::Tensor&) { return parameter_placements(tp.mesh(), name); });
  }
  if (mesh.mesh().find_axis("dp")) {
    sherd::FullyShardOptions sharding;
    if (options_.uses_bfloat16) sharding.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    if (options_.fully_sharded)
      sherd::fully_shard(model_, mesh["dp"], sharding);
    else
      sherd::data_parallel(model_, mesh["dp"]);
  }
}

at::Tensor Trainer::placed(const at::Tensor& rows) const {
  const auto local = rows.to(device_);
  if (!mesh_) return local;
  // Every rank has drawn the same batch: each cuts out its rows and nothing is sent.
  return sherd::distribute_tensor(local, *mesh_, batch_placements(mesh_->mesh()), {.source = std::nullopt});
}

at::Tensor Trainer::advance() {
  const Batch batch = corpus_.batch(steps_++, options_.batch, options_.model.length, options_.seed);
  set_learning_rate();
  optimizer_.zero_grad();
  const auto loss = model_->loss(placed(batch.inputs), placed(batch.targets));
  loss.backward();
  if (options_.clip) gradient_norm_ = sherd::clip_grad_norm_(model_->parameters(), *options_.clip);
  optimizer_.step();
  return loss.detach();
}

double Trainer::value_of(const at::Tensor& loss) {
  return (sherd::is_dtensor(loss) ? sherd::full_tensor(loss) : loss).item<double>();
}

void Trainer::set_learning_rate() {
  const double share =
      steps_ < options_.warmup ? static_cast<double>(steps_) / static_cast<double>(options_.warmup) : 1;
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(share * options_.learning_rate);
}

sherd::StateDict Trainer::state() {
  return {{"model", sherd::get_model_state_dict(*model_)},
          {"optimizer", sherd::get_optimizer_state_dict(*model_, optimizer_)},
          {"step", steps_},
          {"generator", sherd::get_generator_state(sherd::default_generator())}};
}

void Trainer::go_on_from(const sherd::StateDict& state) {
  // The tensors of the model and of the optimizer are filled already; numbers are not.
  sherd::set_optimizer_state_dict(*model_, optimizer_, *state.at("optimizer").dict());
  steps_ = *state.at("step").integer();
  auto generator = sherd::default_generator();
  sherd::set_generator_state(generator, *state.at("generator").tensor());
}

std::vector<double> relative_differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(std::abs(a[i] - b[i]) / std::abs(b[i]));
  return differences;
}
