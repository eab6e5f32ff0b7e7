// How fast does the GPT of examples/train_gpt train? The ranks are the processes that a launcher started. Rank 0 prints
// a list with one {"tokens_per_second", "bytes", "peak_mib", "loss"}: bytes that a rank receives in a step, the most
// memory that any rank had, the loss of the first step that was measured. --plain trains without sherd, on one rank.
// --graph captures a step on one GPU in a CUDA graph and plays it: what is left when the host launches no kernels.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/fused_step.h"
#include "sherd/world.h"
#include "train.h"

#ifdef SHERD_BENCH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

struct BenchOptions {
  int64_t dp = 1, tp = 1;
  std::string device = "cpu";
  int64_t steps = 50, warmup = 10;
  bool plain = false;
  bool graph = false;
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

double tokens_of(const BenchOptions& options) {
  return static_cast<double>(options.steps * options.training.batch * options.training.model.length);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

#ifdef SHERD_BENCH_CUDA
// The same batch in every step, and AdamW's correction for the first steps as it is in the step that is captured: what
// it costs does not depend on either. The first replay's loss is told.
nlohmann::json measure_graph(Gpt& model, const Corpus& corpus, const BenchOptions& options,
                             const std::optional<sherd::DeviceMesh>& mesh) {
  const Batch batch = corpus.batch(0, options.training.batch, options.training.model.length, options.training.seed);
  const auto placed = [&](const at::Tensor& rows) {
    const at::Tensor local = rows.to(at::kCUDA);
    if (!mesh) return local;
    return sherd::distribute_tensor(local, *mesh, batch_placements(mesh->mesh()), {.source = std::nullopt});
  };
  const at::Tensor inputs = placed(batch.inputs);
  const at::Tensor targets = placed(batch.targets);
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(options.training.learning_rate).weight_decay(0.01));
  const auto step = [&] {
    optimizer.zero_grad();
    const at::Tensor loss = model->loss(inputs, targets);
    loss.backward();
    if (options.training.fuses_step)
      sherd::fused_step(optimizer);
    else
      optimizer.step();
    return mesh ? sherd::to_local(loss.detach()) : loss.detach();
  };
  at::cuda::CUDAGraph graph;
  at::Tensor loss;
  {
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool());
    for (int64_t i = 0; i < std::max<int64_t>(options.warmup, 3); ++i) step();
    optimizer.zero_grad();  // so that gradients are made anew, in the graph's own memory
    torch::cuda::synchronize();
    // Other threads go on as they like: a transport's may be looking after its own events.
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    loss = step();
    graph.capture_end();
  }
  torch::cuda::synchronize();
  graph.replay();
  const auto first = loss.item<double>();
  const auto start = Clock::now();
  for (int64_t i = 0; i < options.steps; ++i) graph.replay();
  torch::cuda::synchronize();
  return {{"tokens_per_second", tokens_of(options) / seconds_since(start)},
          {"bytes", 0},
          {"peak_mib", peak_mib()},
          {"loss", first}};
}
#else
nlohmann::json measure_graph(Gpt&, const Corpus&, const BenchOptions&, const std::optional<sherd::DeviceMesh>&) {
  throw std::runtime_error("--graph needs a build with CUDA: ./dev build cuda");
}
#endif

nlohmann::json measure(Trainer& trainer, const BenchOptions& options, const std::optional<sherd::World>& world) {
  const auto finish_steps = [&] {
    if (options.device == "cuda") torch::cuda::synchronize();
    if (world) sherd::barrier(world->group());
  };
  for (int64_t i = 0; i < options.warmup; ++i) trainer.advance();
  finish_steps();
  const auto start = Clock::now();
  const at::Tensor loss = trainer.advance();
  for (int64_t i = 1; i < options.steps; ++i) trainer.advance();
  finish_steps();
  const double seconds = seconds_since(start);
  const double peak = peak_mib();
  int64_t bytes = 0;
  {
    const sherd::CommRecorder recorder;
    trainer.advance();
    bytes = recorder.bytes();
    if (options.show && (!world || world->rank() == 0)) std::fprintf(stderr, "%s", recorder.to_string().c_str());
  }
  return {{"tokens_per_second", tokens_of(options) / seconds},
          {"bytes", bytes},
          {"peak_mib", world ? largest(world->group(), peak) : peak},
          {"loss", Trainer::value_of(loss)}};
}

void print(const nlohmann::json& row) { std::printf("%s\n", nlohmann::json::array({row}).dump().c_str()); }

int run(int argc, char** argv) {
  BenchOptions options;
  CLI::App app{"How fast a GPT trains."};
  app.add_option("--dp", options.dp, "ranks along the data axis");
  app.add_option("--tp", options.tp, "ranks along the tensor axis");
  app.add_flag("--fsdp", options.training.fully_sharded, "fully sharded along the data axis");
  app.add_flag("--plain", options.plain, "without sherd, one rank");
  app.add_flag("--graph", options.graph, "one GPU: a step captured in a CUDA graph, and played");
  app.add_flag("--fused", options.training.fuses_step, "the optimizer steps by sherd::fused_step");
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
  if (options.graph && (options.device != "cuda" || options.dp * options.tp != 1))
    throw std::invalid_argument("--graph takes one rank and --device cuda");
  const Corpus corpus(kText);
  options.training.model.vocabulary = corpus.vocabulary();
  if (options.plain) {
    Trainer trainer(make_model(options.training), corpus, options.training, at::Device(options.device));
    print(options.graph ? measure_graph(trainer.model(), corpus, options, std::nullopt)
                        : measure(trainer, options, std::nullopt));
    return 0;
  }
  const sherd::World world = sherd::init();
  const auto mesh = sherd::init_device_mesh(options.device, {options.dp, options.tp}, {"dp", "tp"});
  Trainer trainer(make_model(options.training), corpus, options.training, mesh);
  const nlohmann::json row =
      options.graph ? measure_graph(trainer.model(), corpus, options, mesh) : measure(trainer, options, world);
  if (world.rank() == 0) print(row);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "bench_train: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_train: %s\n", error.what());
  }
  return 1;
}
