#pragma once
// For tests of training: a small model whose numbers are the same in every run, whole and on a mesh.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <vector>

#include "sherd/sherd.h"

namespace sherd::testing {

inline at::Tensor numbers(at::IntArrayRef shape, int64_t salt = 0) {
  const int64_t n = c10::multiply_integers(shape);
  return torch::arange(n, torch::kDouble).mul(0.37).add(static_cast<double>(salt)).sin().view(shape);
}

/// Linear, tanh, linear: widths that no mesh of the tests divides evenly.
inline torch::nn::Sequential make_mlp() {
  static std::mutex one_at_a_time;  // constructors draw from torch's one generator
  const std::lock_guard lock(one_at_a_time);
  torch::nn::Sequential model(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
  model->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  int64_t salt = 0;
  for (const at::Tensor& parameter : model->parameters()) parameter.copy_(numbers(parameter.sizes(), ++salt));
  return model;
}

/// A mesh, and how parameters and the batch lie on it.
struct Arrangement {
  const char* name;
  const char* mesh;
  const char* matrix;  // of weights
  const char* vector;  // of biases
  const char* batch;
};

inline const std::vector<Arrangement>& arrangements() {
  static const std::vector<Arrangement> all = {
      {"Alone", "[dp=1]", "(R)", "(R)", "(S(0))"},
      {"DataParallel", "[dp=2]", "(R)", "(R)", "(S(0))"},
      {"FullySharded", "[dp=3]", "(S(0))", "(S(0))", "(S(0))"},
      {"FourRanks", "[dp=4]", "(S(0))", "(S(0))", "(S(0))"},
      {"TensorParallel", "[tp=3]", "(S(1))", "(R)", "(R)"},
      {"DataAndTensor", "[dp=2, tp=2]", "(R, S(0))", "(R, S(0))", "(S(0), R)"},
      {"ShardedTwice", "[dp=2, tp=2]", "(S(0), S(1))", "(S(0), R)", "(S(0), R)"},
  };
  return all;
}

/// Runs `test` on every rank of every arrangement.
template <class Test>
void on_every_arrangement(const Test& test) {
  for (const Arrangement& placed_as : arrangements()) {
    const Mesh ranks = parse_mesh(placed_as.mesh);
    spawn(static_cast<int>(ranks.size()), [&](World&) {
      SCOPED_TRACE(placed_as.name);
      test(DeviceMesh("cpu", ranks), placed_as);
    });
  }
}

inline torch::nn::Sequential make_mlp(const DeviceMesh& mesh, const Arrangement& placed_as) {
  torch::nn::Sequential model = make_mlp();
  distribute_module(model, mesh, [&](const std::string&, const at::Tensor& tensor) {
    return parse_placements(tensor.dim() == 2 ? placed_as.matrix : placed_as.vector);
  });
  return model;
}

inline at::Tensor distribute_batch(const at::Tensor& batch, const DeviceMesh& mesh, const Arrangement& placed_as) {
  return distribute_tensor(batch, mesh, parse_placements(placed_as.batch));
}

/// Through a handle that is const, which torch's operator-> takes for a const module.
inline at::Tensor output_of(const torch::nn::Sequential& model, const at::Tensor& x) { return model.ptr()->forward(x); }

inline at::Tensor whole_of(const at::Tensor& tensor) { return is_dtensor(tensor) ? full_tensor(tensor) : tensor; }

inline void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what,
                         double tolerance = 1e-10) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!got.defined()) return;
  const at::Tensor whole = whole_of(got.detach());
  ASSERT_EQ(whole.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(torch::allclose(whole.to(torch::kDouble), expected.detach().to(torch::kDouble), tolerance, tolerance))
      << what << "\n"
      << whole << "\n"
      << expected;
}

inline void expect_all_close(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                             const std::string& what, double tolerance = 1e-10) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], expected[i], what + " " + std::to_string(i), tolerance);
}

inline std::vector<at::Tensor> gradients_of(const torch::nn::Sequential& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace sherd::testing
