// Serving: a GPT whose heads and hidden layers are cut over two ranks writes what it writes on one, token for token,
// and how long a token takes on each.

#include <sherd/world.h>

#include <chrono>
#include <iostream>

#include "shard.h"

namespace {

constexpr int kRanks = 2;
constexpr int64_t kBatch = 2;
constexpr int64_t kTokens = 64;

struct Written {
  torch::Tensor tokens;  // [batch, count]
  double milliseconds_per_token = 0;
};

Written timed(CachedGpt& model, const std::function<std::vector<KeyValueCache>()>& new_cache,
              const torch::Tensor& prompt) {
  write_greedily(model, new_cache(), prompt, 8);  // warm
  const auto begin = std::chrono::steady_clock::now();
  const auto written = write_greedily(model, new_cache(), prompt, kTokens);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::vector<torch::Tensor> plain;
  for (const auto& each : written) plain.push_back(sherd::is_dtensor(each) ? sherd::full_tensor(each) : each);
  return {torch::stack(plain, 1), took.count() / kTokens};
}

}  // namespace

int main() {
  const GptSize size{.vocabulary = 64, .layers = 4, .width = 256, .heads = 8, .length = 96};
  torch::manual_seed(1);
  CachedGpt whole(size);
  const auto prompt = torch::randint(size.vocabulary, {kBatch, 16});
  std::vector<CachedGpt> copies;  // modules draw from one generator: they are made before the ranks start
  for (int rank = 0; rank < kRanks; ++rank) {
    copies.emplace_back(size);
    torch::NoGradGuard no_grad;
    auto parameters = copies.back()->named_parameters();
    for (const auto& each : whole->named_parameters()) parameters[each.key()].copy_(each.value());
  }

  torch::set_num_threads(1);  // as each of the ranks has
  const Written alone = timed(
      whole, [&] { return whole->make_cache(kBatch, [](at::IntArrayRef shape) { return torch::zeros(shape); }); },
      prompt);

  sherd::spawn(kRanks, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {kRanks}, {"tp"});
    auto& model = copies[static_cast<size_t>(world.rank())];
    sherd::distribute_module(model, mesh, serving_placements);
    const Written shared = timed(
        model, [&] { return sharded_cache(model, kBatch, mesh, torch::kFloat); }, prompt);
    TORCH_CHECK(shared.tokens.equal(alone.tokens), "the ranks write something else than one");
    if (world.rank() != 0) return;
    std::cout << kTokens << " tokens for each of " << kBatch << " texts, equal on one rank and on " << kRanks
              << "\n  one rank:  " << alone.milliseconds_per_token << " ms per token\n  " << kRanks
              << " ranks:   " << shared.milliseconds_per_token << " ms per token\n";
  });
}
