// Lesson 8: random numbers.
//
// A random number on a DTensor follows from the seed, from how many draws came before, and from the element's place in
// the whole tensor. Each rank draws its own part alone, nothing is sent, and still the weights and the dropout masks
// are the same on one rank and on a thousand. A run can go on with another number of ranks.

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <iostream>
#include <vector>

int main() {
  std::vector<torch::Tensor> weights, kept;
  for (const int ranks : {1, 2, 3}) {
    sherd::spawn(ranks, [&](sherd::World& world) {
      const auto mesh = sherd::init_device_mesh("cpu", {ranks}, {"tp"});
      sherd::manual_seed(7);  // on every rank the same

      // Born sharded: no rank ever has the whole weight. torch::nn::init draws on it as on any tensor.
      torch::nn::Linear layer = [&] {
        const sherd::ShardedInit guard(mesh);
        return torch::nn::Linear(4, 6);
      }();
      torch::nn::init::normal_(layer->weight, 0, 0.1);
      const auto dropped = torch::dropout(layer->weight, 0.5, /*train=*/true);

      const auto whole = sherd::full_tensor(layer->weight.detach());
      const auto mask = sherd::full_tensor(dropped.detach()).ne(0);
      if (world.rank() != 0) return;
      weights.push_back(whole.clone());
      kept.push_back(mask.clone());
      std::cout << sherd::to_string(layer->weight) << ": row 0 is";
      for (int i = 0; i < 4; ++i) std::cout << (mask[0][i].item<bool>() ? " kept" : " dropped");
      std::cout << "\n";
    });
  }
  for (size_t i = 1; i < weights.size(); ++i)
    TORCH_CHECK(weights[i].equal(weights[0]) && kept[i].equal(kept[0]), "the numbers are others");
  std::cout << "the same bits on 1, 2 and 3 ranks\n";
}

// try: sherd::manual_seed(7, sherd::RngMode::torch_exact), and compare with what plain torch draws after
// torch::manual_seed(7). What does it cost?
