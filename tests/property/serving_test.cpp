// A GPT that is cut over ranks, its cache with it, writes what it writes on one device, token for token.

#include <gtest/gtest.h>

#include "shard.h"
#include "sherd/collectives.h"
#include "sherd/world.h"

namespace {

using at::Tensor;

const GptSize kSize{.vocabulary = 24, .layers = 2, .width = 16, .heads = 4, .length = 40};

CachedGpt copy_of(const CachedGpt& model) {
  CachedGpt copy(kSize);
  copy->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  auto parameters = copy->named_parameters();
  for (const auto& each : model->named_parameters()) parameters[each.key()].copy_(each.value());
  return copy;
}

TEST(ServingTest, GreedyDecodingIsThatOfOneDevice) {
  torch::manual_seed(3);
  CachedGpt whole(kSize);
  whole->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;  // larger weights: a text that does not repeat itself
    for (const Tensor& parameter : whole->parameters()) parameter.mul_(2);
  }
  const Tensor prompt = torch::randint(kSize.vocabulary, {3, 7});
  const auto zeros = [](at::IntArrayRef shape) { return torch::zeros(shape, torch::kDouble); };
  const auto expected = torch::stack(write_greedily(whole, whole->make_cache(3, zeros), prompt, 32), 1);
  ASSERT_GT(std::get<0>(at::_unique(expected)).numel(), 4) << "a text of few tokens proves little";

  for (const int ranks : {1, 2, 4}) {
    std::vector<CachedGpt> copies;
    for (int rank = 0; rank < ranks; ++rank) copies.push_back(copy_of(whole));
    sherd::spawn(ranks, [&](sherd::World& world) {
      const auto mesh = sherd::init_device_mesh("cpu", {ranks}, {"tp"});
      CachedGpt& model = copies[static_cast<size_t>(world.rank())];
      sherd::distribute_module(model, mesh, serving_placements);
      const auto cache = sharded_cache(model, 3, mesh, torch::kDouble);
      EXPECT_EQ(sherd::to_local(cache[0].keys).size(1), 4 / ranks) << "the cache is cut by heads";
      const sherd::CommRecorder recorder;
      const auto written = write_greedily(model, cache, prompt, 32);
      std::vector<Tensor> plain;
      for (const Tensor& each : written) plain.push_back(sherd::full_tensor(each));
      EXPECT_TRUE(torch::stack(plain, 1).equal(expected)) << ranks << " ranks";
      // Two sums a block, of one position; nothing that grows with the text, and nothing at all on one rank.
      for (const auto& call : recorder.calls()) EXPECT_EQ(call.name, "all_reduce");
      EXPECT_EQ(recorder.calls().size(), ranks > 1 ? 32U * 2 * kSize.layers : 0U) << recorder.to_string();
      // What was written lies in the cache that was given.
      EXPECT_TRUE(sherd::full_tensor(cache[1].values.narrow(2, 7, 20).abs().sum(-1)).ne(0).all().item<bool>());
    });
  }
}

}  // namespace
