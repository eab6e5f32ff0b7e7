// How fast does the GPT of examples/train_gpt train? The ranks are the processes that a launcher started. Rank 0 prints
// a list with one {"tokens_per_second", "bytes", "peak_mib", "loss"}: bytes that a rank receives in a step, the most
// memory that any rank had, the loss of the first step that was measured. --plain trains without sherd, on one rank.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "sherd/collectives.h"
#include "sherd/world.h"
#include "train.h"

namespace {

struct BenchOptions {
  int64_t dp = 1, tp = 1;
  std::string device = "cpu";
  int64_t steps = 50, warmup = 10;
  bool plain = false;
  bool show = false;
  TrainOptions training = {};
};

// Of this process since it began.
double peak_mib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  throw std::runtime_error("/proc/self/status has no line VmHWM");
}

double largest(const sherd::Group& group, double value) {
  const at::Tensor all = torch::full({1}, value, torch::kDouble);
  sherd::all_reduce(group, all, sherd::ReduceOp::max).wait();
  return all.item<double>();
}

nlohmann::json measure(Trainer& trainer, const BenchOptions& options, const std::optional<sherd::World>& world) {
  const auto finish_steps = [&] {
    if (options.device == "cuda") torch::cuda::synchronize();
    if (world) sherd::barrier(world->group());
  };
  for (int64_t i = 0; i < options.warmup; ++i) trainer.advance();
  finish_steps();
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor loss = trainer.advance();
  for (int64_t i = 1; i < options.steps; ++i) trainer.advance();
  finish_steps();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double peak = peak_mib();
  int64_t bytes = 0;
  {
    const sherd::CommRecorder recorder;
    trainer.advance();
    bytes = recorder.bytes();
    if (options.show && (!world || world->rank() == 0)) std::fprintf(stderr, "%s", recorder.to_string().c_str());
  }
  const int64_t tokens = options.steps * options.training.batch * options.training.model.length;
  return {{"tokens_per_second", static_cast<double>(tokens) / seconds},
          {"bytes", bytes},
          {"peak_mib", world ? largest(world->group(), peak) : peak},
          {"loss", Trainer::value_of(loss)}};
}

void print(const nlohmann::json& row) { std::printf("%s\n", nlohmann::json::array({row}).dump().c_str()); }

}  // namespace

int main(int argc, char** argv) {
  BenchOptions options;
  CLI::App app{"How fast a GPT trains."};
  app.add_option("--dp", options.dp, "ranks along the data axis");
  app.add_option("--tp", options.tp, "ranks along the tensor axis");
  app.add_flag("--fsdp", options.training.fully_sharded, "fully sharded along the data axis");
  app.add_flag("--plain", options.plain, "without sherd, one rank");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--layers", options.training.model.layers, "of the model");
  app.add_option("--width", options.training.model.width, "of the model");
  app.add_option("--heads", options.training.model.heads, "of the attention");
  app.add_option("--length", options.training.model.length, "of a sequence");
  app.add_option("--batch", options.training.batch, "sequences, on all ranks together");
  app.add_option("--steps", options.steps, "steps that are measured");
  app.add_option("--warmup", options.warmup, "steps before these");
  app.add_flag("--show", options.show, "print what one step sends");
  CLI11_PARSE(app, argc, argv);
  const Corpus corpus(kText);
  options.training.model.vocabulary = corpus.vocabulary();
  if (options.plain) {
    Trainer trainer(make_model(options.training), corpus, options.training, at::Device(options.device));
    print(measure(trainer, options, std::nullopt));
    return 0;
  }
  const sherd::World world = sherd::init();
  const auto mesh = sherd::init_device_mesh(options.device, {options.dp, options.tp}, {"dp", "tp"});
  Trainer trainer(make_model(options.training), corpus, options.training, mesh);
  const nlohmann::json row = measure(trainer, options, world);
  if (world.rank() == 0) print(row);
}
