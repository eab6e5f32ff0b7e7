#include "training/torch_draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <mutex>

namespace sherd::detail {
namespace {

at::Tensor state_of(at::Generator generator) {  // a handle: copies name the same
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

TorchDraws TorchDraws::now(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.device().is_cuda()) continue;
    const at::Generator& of_device = at::globalContext().defaultGenerator(tensor.device());
    if (std::find(generators.begin(), generators.end(), of_device) == generators.end()) generators.push_back(of_device);
  }
  TorchDraws draws;
  for (const at::Generator& generator : generators) draws.states_.push_back({generator, state_of(generator)});
  return draws;
}

void TorchDraws::keep_changed() {
  std::erase_if(states_, [](const State& state) { return at::equal(state.bytes, state_of(state.generator)); });
}

TorchDraws TorchDraws::exchange() const {
  TorchDraws before;
  for (const State& state : states_) {
    at::Generator generator = state.generator;
    before.states_.push_back({generator, state_of(generator)});
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state.bytes);
  }
  return before;
}

}  // namespace sherd::detail
