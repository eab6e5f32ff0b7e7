#include "train.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <utility>

namespace {

TrainingOptions training_options(const TrainOptions& options) {
  return {.learning_rate = options.learning_rate,
          .warmup = options.warmup,
          .clip = options.clip,
          .fully_sharded = options.fully_sharded,
          .uses_bfloat16 = options.uses_bfloat16,
          .fuses_step = options.fuses_step};
}

std::shared_ptr<Task> task_of(const Gpt& model, const Corpus& corpus, const TrainOptions& options) {
  const Rows rows{.batch = options.batch, .length = options.model.length, .seed = options.seed};
  return std::make_shared<TextTask<Gpt>>(model, corpus, rows);
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

RotaryGpt make_model(const RotaryGptConfig& config, at::ScalarType dtype, uint64_t seed) {
  torch::manual_seed(seed);
  RotaryGpt model(config);
  model->to(dtype);
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

sherd::Placement along_tp(const std::string& name) {
  const bool has_cut_outputs = ends_with_any(name, {"query.weight", "key.weight", "value.weight", "up.weight",
                                                    "gate.weight", "query.bias", "key.bias", "value.bias", "up.bias"});
  if (has_cut_outputs) return sherd::Shard(0);
  const bool has_cut_inputs = ends_with_any(name, {"out.weight", "down.weight"});
  if (has_cut_inputs) return sherd::Shard(1);
  return sherd::Replicate();
}

sherd::Placements parameter_placements(const sherd::Mesh& mesh, const std::string& name) {
  sherd::Placements placements(static_cast<size_t>(mesh.ndim()), sherd::Replicate());
  const auto tp = mesh.find_axis("tp");
  if (tp && mesh.size(*tp) > 1) placements[static_cast<size_t>(*tp)] = along_tp(name);
  return placements;
}

Trainer::Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, at::Device device)
    : Training(task_of(model, corpus, options), training_options(options), device), model_(std::move(model)) {}

Trainer::Trainer(Gpt model, const Corpus& corpus, const TrainOptions& options, const sherd::DeviceMesh& mesh)
    : Training(task_of(model, corpus, options), training_options(options), mesh), model_(std::move(model)) {}

std::vector<double> relative_differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(std::abs(a[i] - b[i]) / std::abs(b[i]));
  return differences;
}
