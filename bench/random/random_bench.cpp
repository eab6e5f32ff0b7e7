// What does drawing cost, beside torch's own operators on a plain tensor of the same size? Prints a list of
// {"case", "sherd_s", "peer_s", "ratio"}: the best of several calls each, which take turns.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sherd/dtensor.h"
#include "sherd/random.h"
#include "sherd/world.h"

namespace {

using at::Tensor;
using Call = std::function<void(Tensor&)>;

struct Case {
  std::string name;
  Call call;
  std::vector<at::ScalarType> dtypes = {at::kFloat};
};

std::vector<Case> cases() {
  return {
      {"uniform_", [](Tensor& x) { x.uniform_(); }, {at::kFloat, at::kDouble, at::kBFloat16}},
      {"normal_", [](Tensor& x) { x.normal_(); }, {at::kFloat, at::kDouble, at::kBFloat16}},
      {"native_dropout", [](Tensor& x) { torch::native_dropout(x, 0.1, true); }, {at::kFloat, at::kBFloat16}},
      {"dropout", [](Tensor& x) { torch::dropout(x, 0.1, true); }},
      {"bernoulli_", [](Tensor& x) { x.bernoulli_(0.5); }},
      {"exponential_", [](Tensor& x) { x.exponential_(); }},
      {"random_", [](Tensor& x) { x.random_(1000); }},
  };
}

// Of one call; on a GPU of one of many that are under way, which hides what they cost on the CPU.
double seconds_of(const Call& call, Tensor& x) {
  const bool on_gpu = x.device().is_cuda();
  const int calls = on_gpu ? 50 : 1;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call(x);
  if (on_gpu) torch::cuda::synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t bytes = int64_t{64} << 20;
  int runs = 7;
  CLI::App app("drawing beside torch");
  app.add_option("--bytes", bytes, "of the local tensor");
  app.add_option("--runs", runs, "of each side; the best counts");
  CLI11_PARSE(app, argc, argv);

  sherd::init();
  torch::NoGradGuard no_grad;
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::pair<std::string, int>> settings = {{"cpu", 1}};
  if (at::get_num_threads() > 1) settings.emplace_back("cpu", at::get_num_threads());
  if (torch::cuda::is_available()) settings.emplace_back("cuda", 0);
  for (const auto& [device, threads] : settings) {
    if (threads > 0) at::set_num_threads(threads);
    const sherd::DeviceMesh mesh = sherd::init_device_mesh(device, {1});
    for (const Case& each : cases()) {
      for (const at::ScalarType dtype : each.dtypes) {
        const int64_t count = bytes / static_cast<int64_t>(c10::elementSize(dtype));
        Tensor plain = torch::ones({count}, at::TensorOptions(dtype).device(mesh.device()));
        Tensor ours = sherd::ones({count}, mesh, {sherd::Shard(0)}, dtype);
        double sherd_s = 1e9;
        double peer_s = 1e9;
        for (int run = 0; run < runs + 1; ++run) {
          const double a = seconds_of(each.call, ours);
          const double b = seconds_of(each.call, plain);
          if (run == 0) continue;  // memory is touched for the first time
          sherd_s = std::min(sherd_s, a);
          peer_s = std::min(peer_s, b);
        }
        const std::string where =
            threads > 0 ? std::to_string(threads) + (threads == 1 ? " thread" : " threads") : device;
        rows.push_back({{"case", each.name + " " + c10::toString(dtype) + ", " + where},
                        {"sherd_s", sherd_s},
                        {"peer_s", peer_s},
                        {"ratio", peer_s / sherd_s}});
      }
    }
  }
  std::printf("%s\n", rows.dump(1).c_str());
  return 0;
}
