#include <ATen/core/Generator.h>

#include <mutex>

#include "sherd/model_state.h"

namespace sherd {

at::Tensor get_generator_state(const at::Generator& generator) {
  at::Generator same = generator;
  const std::lock_guard<std::mutex> lock(same.mutex());
  return same.get_state();
}

void set_generator_state(const at::Generator& generator, const at::Tensor& state) {
  at::Generator same = generator;
  const std::lock_guard<std::mutex> lock(same.mutex());
  same.set_state(state);
}

}  // namespace sherd
