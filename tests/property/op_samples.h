#pragma once
// Operators with inputs to try them on. Inputs hold small integers where the operator allows, so that sums are exact.

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace sherd::testing {

struct OpSample {
  std::string name;
  std::vector<at::Tensor> inputs;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> run;
  double tolerance = 1e-9;
  bool differentiable = true;
};

std::vector<OpSample> op_samples();

}  // namespace sherd::testing
