// Lesson 3: a layer.
//
// A layer of torch::nn does not know that its weight is a DTensor. Where the weight is cut decides what the layer has
// to send, and the gradient comes back to where the weight lies.

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <iostream>
#include <string>

// The layer of this lesson, with the same numbers for everybody who makes one.
torch::nn::Linear make_layer() {
  torch::nn::Linear layer(torch::nn::LinearOptions(6, 4).bias(false));
  torch::NoGradGuard no_grad;
  layer->weight.copy_(torch::arange(24.).view({4, 6}) / 10);
  return layer;
}

int main() {
  const auto x = torch::arange(12.).view({2, 6});
  torch::nn::Linear alone = make_layer();  // on one device, to compare with
  const auto expected = alone(x);
  expected.square().sum().backward();

  sherd::spawn(2, [&](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {2}, {"tp"});
    for (const int64_t dim : {0, 1}) {
      torch::nn::Linear layer = make_layer();
      // The weight [outputs, inputs] is cut by its outputs, or by its inputs. An optimizer that has it sees it change.
      sherd::distribute_parameter_(layer->weight, mesh, {sherd::Shard(dim)});

      sherd::CommRecorder recorder;
      const auto y = layer(x);  // x is plain: the same on every rank
      y.square().sum().backward();
      const auto gradient = layer->weight.grad();
      const std::string sent = recorder.calls().empty() ? "nothing\n" : recorder.to_string();

      // By outputs, each rank computes some of the results: nothing is added up. By inputs, each rank has a part of
      // every result, a Partial; squaring needs the sums, so they are made first.
      TORCH_CHECK(torch::allclose(sherd::full_tensor(y), expected));
      TORCH_CHECK(torch::allclose(sherd::full_tensor(gradient), alone->weight.grad()));
      if (world.rank() != 0) continue;
      std::cout << "weight   " << sherd::to_string(layer->weight) << "\n"
                << "result   " << sherd::to_string(y) << "\n"
                << "gradient " << sherd::to_string(gradient) << "\n"
                << "sent     " << sent << "\n";
    }
  });
}

// try: a batch that is cut, too: layer(sherd::distribute_tensor(x, mesh, {sherd::Shard(0)})). What becomes of the
// result, and of the gradient? Or three ranks, of which the last has little to do.
