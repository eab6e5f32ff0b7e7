#pragma once
// The same module trained on one device and by ranks: equal outputs, gradients and parameters.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "sherd/sherd.h"

namespace sherd::testing {

inline at::Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

inline void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what,
                         double bound = 1e-10) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!got.defined()) return;
  const at::Tensor whole = is_dtensor(got) ? full_tensor(got.detach()) : got.detach();
  ASSERT_EQ(whole.sizes(), expected.sizes()) << what;
  const double difference = whole.numel() == 0 ? 0 : (whole - expected).abs().max().item<double>();
  EXPECT_LE(difference, bound) << what;
}

/// A module with numbers of its own as weights, so that every copy has the same.
template <class Make>
auto made(const Make& make) {
  static std::mutex one_at_a_time;  // constructors draw from torch's one generator
  const std::lock_guard lock(one_at_a_time);
  auto module = make();
  module->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  int64_t salt = 0;
  for (const at::Tensor& parameter : module->parameters()) {
    parameter.copy_(numbers(parameter.sizes(), ++salt) * (parameter.dim() > 1 ? 0.3 : 1.0));
  }
  return module;
}

struct Trained {
  std::vector<at::Tensor> outputs;     // of every step
  std::vector<at::Tensor> gradients;   // of every parameter at the first step
  std::vector<at::Tensor> parameters;  // in the end
};

/// Three steps of AdamW.
inline Trained train(torch::nn::Module& module, const std::function<at::Tensor()>& forward) {
  Trained result;
  torch::optim::AdamW optimizer(module.parameters(), torch::optim::AdamWOptions(1e-2).eps(1e-5));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor output = forward();
    result.outputs.push_back(output.detach().clone());
    (output * numbers(output.sizes(), 5)).sum().backward();
    if (step == 0) {
      for (const at::Tensor& parameter : module.parameters()) {
        result.gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
      }
    }
    optimizer.step();
  }
  for (const at::Tensor& parameter : module.parameters()) result.parameters.push_back(parameter.detach());
  for (const at::Tensor& buffer : module.buffers()) result.parameters.push_back(buffer.detach().to(torch::kDouble));
  return result;
}

inline void expect_alike(const Trained& got, const Trained& expected, const std::string& how) {
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    expect_close(got.outputs[i], expected.outputs[i], how + ", output of step " + std::to_string(i));
  }
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    expect_close(got.gradients[i], expected.gradients[i], how + ", gradient " + std::to_string(i));
  }
  for (size_t i = 0; i < expected.parameters.size(); ++i) {
    expect_close(got.parameters[i], expected.parameters[i], how + ", parameter " + std::to_string(i), 1e-9);
  }
}

}  // namespace sherd::testing
