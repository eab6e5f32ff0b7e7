// For every operator, mesh and placement: full_tensor(op(distribute(x))) equals op(x), and so do the gradients. Where
// there is a GPU, ranks that share it find what it finds alone.

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string_view>

#include "property/distribute_any.h"
#include "property/op_samples.h"
#include "property/sample_tools.h"
#include "rules/registry.h"

namespace sherd::testing {
namespace {

std::vector<OpSample> all_samples() {
  std::vector<OpSample> all = op_samples();
  add_rest_of_tables(all);
  return all;
}

// Lists of placements, one per input: those that choices() gives it. All of them where they are few, a fixed random
// choice otherwise.
template <class Choices>
std::vector<std::vector<Placements>> combinations(const OpSample& sample, size_t most, const Choices& choices_for) {
  std::vector<std::vector<Placements>> choices;
  size_t total = 1;
  for (const at::Tensor& input : sample.inputs) {
    choices.push_back(choices_for(input));
    total *= choices.back().size();
  }
  std::vector<std::vector<Placements>> result;
  std::mt19937 random(7);
  for (size_t k = 0; k < std::min(total, most); ++k) {
    size_t index = total <= most ? k : random() % total;
    std::vector<Placements> one;
    for (const auto& choice : choices) {
      one.push_back(choice[index % choice.size()]);
      index = total <= most ? index / choice.size() : random();
    }
    result.push_back(std::move(one));
  }
  return result;
}

// The usual placements, and some of the others.
std::vector<std::vector<Placements>> combinations(const OpSample& sample, const Mesh& mesh) {
  auto all = combinations(sample, mesh.ndim() == 1 ? 60 : 40, [&](const at::Tensor& input) {
    return all_placements(mesh, input.dim(), input.is_floating_point());
  });
  const auto unusual =
      combinations(sample, 2, [&](const at::Tensor& input) { return unusual_placements(mesh, input); });
  all.insert(all.end(), unusual.begin(), unusual.end());
  return all;
}

std::string text(const OpSample& sample, const Mesh& mesh, const std::vector<Placements>& placements) {
  std::string result = sample.name + " on " + to_string(mesh) + ":";
  for (size_t i = 0; i < placements.size(); ++i) {
    result += " " + to_string(sample.inputs[i].sizes().vec()) + to_string(placements[i]);
  }
  return result;
}

std::string difference(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  if (got.sizes() != expected.sizes()) return "sizes " + to_string(got.sizes().vec());
  if (got.scalar_type() != expected.scalar_type()) return "another dtype";
  if (got.numel() == 0) return "";
  const at::Tensor a = got.to(torch::kDouble);
  const at::Tensor b = expected.to(torch::kDouble);
  if (torch::allclose(a, b, tolerance, tolerance, /*equal_nan=*/true)) return "";
  return "largest difference " + std::to_string((a - b).abs().max().item<double>());
}

at::Tensor weights_for(const at::Tensor& output) {
  const auto options = at::TensorOptions(torch::kDouble).device(output.device());
  return torch::arange(output.numel(), options).remainder(5).sub(2).view(output.sizes());
}

// The gradients of the sum of all differentiable outputs, each element with a weight of its own.
std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  at::Tensor loss;
  for (const at::Tensor& output : outputs) {
    if (!output.is_floating_point() || !output.requires_grad()) continue;
    const at::Tensor term = (output * weights_for(output)).sum();
    loss = loss.defined() ? loss + term : term;
  }
  for (const at::Tensor& input : inputs) input.mutable_grad() = at::Tensor();
  if (loss.defined()) loss.backward();
  std::vector<at::Tensor> grads;
  for (const at::Tensor& input : inputs) grads.push_back(input.grad());
  return grads;
}

std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.detach());
    if (tensor.is_floating_point()) result.back().requires_grad_(true);
  }
  return result;
}

struct Failures {
  std::mutex mutex;
  std::vector<std::string> texts;
  void add(std::string text) {
    const std::lock_guard lock(mutex);
    texts.push_back(std::move(text));
  }
};

void check_one(const OpSample& sample, const DeviceMesh& mesh, const std::vector<Placements>& placements,
               const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& expected_grads,
               Failures& failures) {
  const std::string what = text(sample, mesh.mesh(), placements);
  try {
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      inputs.push_back(distribute_any(sample.inputs[i], mesh, placements[i]));
    }
    inputs = leaves(inputs);
    const std::vector<at::Tensor> outputs = sample.run(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor whole = is_dtensor(outputs[i]) ? full_tensor(outputs[i].detach()) : outputs[i];
      const std::string wrong = difference(whole, expected[i], sample.tolerance);
      if (!wrong.empty()) {
        failures.add(what + ": output " + std::to_string(i) + " (" + to_string(outputs[i]) + "): " + wrong);
        return;
      }
    }
    if (!sample.differentiable) return;
    const std::vector<at::Tensor> grads = gradients(outputs, inputs);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!expected_grads[i].defined() && !grads[i].defined()) continue;
      if (!grads[i].defined()) {
        failures.add(what + ": no gradient of input " + std::to_string(i));
        return;
      }
      Placements wanted = placements_of(inputs[i]);
      for (Placement& p : wanted) {
        if (is_partial(p)) p = Replicate();
      }
      if (!(placements_of(grads[i]) == wanted)) {
        failures.add(what + ": gradient " + std::to_string(i) + " is " + to_string(grads[i]));
      }
      const at::Tensor dense = expected_grads[i].defined() ? expected_grads[i] : torch::zeros_like(sample.inputs[i]);
      const std::string wrong = difference(full_tensor(grads[i]), dense, sample.tolerance);
      if (!wrong.empty()) failures.add(what + ": gradient " + std::to_string(i) + ": " + wrong);
    }
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const std::exception& error) {
    failures.add(what + ": threw " + std::string(error.what()).substr(0, 400));
  }
}

class EveryOp : public ::testing::TestWithParam<OpSample> {};

// What one device finds.
struct Dense {
  explicit Dense(const OpSample& sample) {
    const std::vector<at::Tensor> inputs = leaves(sample.inputs);
    outputs = sample.run(inputs);
    grads = sample.differentiable ? gradients(outputs, inputs) : std::vector<at::Tensor>(inputs.size());
  }
  std::vector<at::Tensor> outputs, grads;
};

void check_on_mesh(const OpSample& sample, const char* device, const Mesh& shape, const Dense& dense,
                   std::chrono::seconds timeout) {
  Failures failures;
  spawn(static_cast<int>(shape.size()),
        [&](World& world) {
          const DeviceMesh mesh(device, shape);
          Failures mine;
          for (const auto& placements : combinations(sample, shape)) {
            check_one(sample, mesh, placements, dense.outputs, dense.grads, mine);
          }
          if (world.rank() == 0) {
            for (auto& text : mine.texts) failures.add(std::move(text));
          } else if (failures.texts.empty()) {
            for (auto& text : mine.texts) failures.add("rank " + std::to_string(world.rank()) + ": " + std::move(text));
          }
        },
        {.timeout = timeout});
  for (size_t i = 0; i < std::min<size_t>(failures.texts.size(), 4); ++i) ADD_FAILURE() << failures.texts[i];
  if (failures.texts.size() > 4) ADD_FAILURE() << "and " << failures.texts.size() - 4 << " more";
}

TEST_P(EveryOp, EqualsDenseUnderEveryPlacement) {
  const Dense dense(GetParam());
  for (const char* mesh : {"[a=2]", "[a=3]", "[a=2, b=2]"}) {
    check_on_mesh(GetParam(), "cpu", parse_mesh(mesh), dense, std::chrono::seconds(15));
  }
}

// How much they find is known to those who have the data.
constexpr std::string_view kFindWhatIsThere[] = {
    "bincount",          "bincount_weighted", "index_by_mask", "masked_select",
    "masked_select_row", "nonzero",           "unique",        "unique_of_booleans",
};

// A rank outside the mesh has nothing. What it gets of a call is what the others get, without data, and it needs
// nobody.
TEST_P(EveryOp, HasTheSameSizesOutsideOfTheMesh) {
  const OpSample& sample = GetParam();
  const Dense dense(sample);
  const bool finds = std::ranges::find(kFindWhatIsThere, sample.name) != std::end(kFindWhatIsThere);
  Failures failures;
  const auto check = [&](const DeviceMesh& mesh, const std::vector<Placements>& placements) {
    const std::string what = text(sample, mesh.mesh(), placements);
    try {
      std::vector<at::Tensor> inputs;
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        inputs.push_back(distribute_any(sample.inputs[i], mesh, placements[i]));
      }
      inputs = leaves(inputs);
      const std::vector<at::Tensor> outputs = sample.run(inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (finds || !is_dtensor(outputs[i])) continue;
        if (outputs[i].sizes() != dense.outputs[i].sizes() || outputs[i].dtype() != dense.outputs[i].dtype() ||
            to_local(outputs[i]).numel() != 0) {
          failures.add(what + ": output " + std::to_string(i) + " is " + to_string(outputs[i]));
        }
      }
      if (!sample.differentiable) return;
      const std::vector<at::Tensor> grads = gradients(outputs, inputs);
      for (size_t i = 0; i < grads.size(); ++i) {
        if (!grads[i].defined()) continue;
        Placements wanted = placements_of(inputs[i]);
        for (Placement& p : wanted) {
          if (is_partial(p)) p = Replicate();
        }
        if (grads[i].sizes() != inputs[i].sizes() || placements_of(grads[i]) != wanted) {
          failures.add(what + ": gradient " + std::to_string(i) + " is " + to_string(grads[i]));
        }
      }
    } catch (const std::exception& error) {
      failures.add(what + ": threw " + std::string(error.what()).substr(0, 400));
    }
  };
  spawn(3,
        [&](World& world) {
          if (world.rank() != 1) return;
          const DeviceMesh mesh("cpu", Mesh({{"a", 2}}, {0, 2}));
          const auto few = combinations(sample, 12, [&](const at::Tensor& input) {
            return all_placements(mesh.mesh(), input.dim(), input.is_floating_point());
          });
          for (const auto& placements : few) check(mesh, placements);
        },
        {.timeout = std::chrono::seconds(15)});
  for (size_t i = 0; i < std::min<size_t>(failures.texts.size(), 4); ++i) ADD_FAILURE() << failures.texts[i];
}

TEST_P(EveryOp, EqualsOneGpuOnRanksThatShareIt) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  OpSample sample = GetParam();
  for (at::Tensor& input : sample.inputs) input = input.cuda();
  std::optional<Dense> dense;
  try {
    dense.emplace(sample);
  } catch (const std::exception& error) {
    GTEST_SKIP() << "torch itself cannot: " << error.what();
  }
  for (const char* mesh : {"[a=2]", "[a=2, b=2]"}) {
    check_on_mesh(sample, "cuda", parse_mesh(mesh), *dense, std::chrono::seconds(60));
  }
}

// Operators that plain tensors were brought to, as the tables name them: "max.dim", and "max" for all overloads.
std::set<std::string> called;

std::unique_ptr<at::ObserverContext> note_call(const at::RecordFunction& function) {
  if (const auto name = function.operator_name()) {
    const std::string base = rules::base_name(name->name);
    const std::string op = base.starts_with("aten::") ? base.substr(6) : base;
    called.insert(op);
    called.insert(op + "." + (name->overload_name.empty() ? "default" : name->overload_name));
  }
  return nullptr;
}

constexpr std::string_view kElsewhere[] = {
    // These have no kernel for CPUs.
    "_fused_rms_norm_backward",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    // These want rows of 16 bytes, or types that are not doubles.
    "_grouped_mm",
    "_int_mm",
    "_scaled_mm",
#if !__has_include(<ATen/ops/_upsample_lanczos2d_aa.h>)
    // Torch 2.11 has none of these.
    "_upsample_lanczos2d_aa",
    "_upsample_lanczos2d_aa_backward",
#endif
    // What these draw depends on more than their arguments: random_test and distributions_test.
    "cauchy",
    "geometric",
    "log_normal",
    "rand_like",
    "randn_like",
};

// In-place and out= forms count with their base.
TEST(Tables, EveryOperatorHasASample) {
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(note_call).scopes({at::RecordScope::FUNCTION}));
  for (const OpSample& sample : all_samples()) {
    const std::vector<at::Tensor> dense = leaves(sample.inputs);
    const std::vector<at::Tensor> outputs = sample.run(dense);
    if (sample.differentiable) gradients(outputs, dense);
  }
  at::removeCallback(handle);
  for (const std::string& op : rules::operators_with_rules()) {
    const bool out = op.ends_with(".out") && called.count(op.substr(0, op.size() - 4)) != 0;
    const bool elsewhere = std::find(std::begin(kElsewhere), std::end(kElsewhere), op) != std::end(kElsewhere);
    EXPECT_NE(called.count(op) != 0 || out, elsewhere) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(all_samples()),
                         [](const ::testing::TestParamInfo<OpSample>& sample) { return sample.param.name; });

}  // namespace
}  // namespace sherd::testing
