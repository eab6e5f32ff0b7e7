// Placements with which an operator needs no communication, and which the tables refuse. An oracle finds them: cut the
// inputs by hand, run the plain operator on each rank's parts, and look whether the results are a placement of the
// dense one. What the engine would not run as it is, is a missing row, or stands below with the reason why it is none.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "property/distribute_any.h"
#include "property/op_samples.h"
#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

constexpr int kRanks = 2;

struct Accepted {
  const char* sample;
  const char* placements;
  const char* reason;
};

// clang-format off
constexpr Accepted kAccepted[] = {
    {"adaptive_avg_pool3d",    "(S(2))",              "windows end at the cut by luck of the sizes"},
    {"adaptive_max_pool3d",    "(S(2))",              "windows end at the cut by luck of the sizes"},
    {"allclose",               "(P(sum), P(sum))",    "one answer for all ranks, by luck the same"},
    {"allclose",               "(P(sum), R)",         "one answer for all ranks, by luck the same"},
    {"allclose",               "(R, P(sum))",         "one answer for all ranks, by luck the same"},
    {"allclose",               "(S(0), S(0))",        "one answer for all ranks"},
    {"allclose",               "(S(1), S(1))",        "one answer for all ranks"},
    {"attention",              "(R, R, P(sum))",      "linear in the value, but logsumexp is not Partial"},
    {"attention",              "(R, R, S(3))",        "the fused kernel wants heads of one size"},
    {"batch_norm",             "(R, P(sum), P(sum))", "linear in weight and bias, but the saved mean is not Partial"},
    {"batch_norm_2d",          "(R, P(sum))",         "linear in the weight, but the saved mean is not Partial"},
    {"bincount_weighted",      "(R, P(sum))",         "how many numbers there are is not known beforehand"},
    {"bincount_weighted",      "(S(0), S(0))",        "how many numbers there are is not known beforehand"},
    {"block_diag",             "(P(sum), P(sum))",    "linear, but it is written into zeros, which are whole"},
    {"copy_in_place",          "(R, P(sum))",         "an in-place result stays where its tensor is"},
    {"count_nonzero",          "(P(sum))",            "parts of a sum are not zero where the sum is not, by luck"},
    {"cross_entropy",          "(S(0), S(0))",        "the mean counts the targets that are not ignored, on all ranks"},
    {"embedding_bag_of_rows",  "(P(sum), R, R)",      "linear in the weight, but the sizes of bags are not Partial"},
    {"embedding_bag_of_rows",  "(R, R, P(sum))",      "linear in the weights of samples, but the sizes of bags are not Partial"},
    {"embedding_bag_of_rows",  "(R, S(0), S(0))",     "bags are found by offsets, which count the indices of all ranks"},
    {"embedding_bag_of_rows",  "(R, S(1), S(1))",     "bags are found by offsets, which count the indices of all ranks"},
    {"equal",                  "(S(0))",              "one answer for all ranks"},
    {"equal",                  "(S(1))",              "one answer for all ranks"},
    {"fractional_max_pool2d",  "(R, P(sum))",         "the numbers shift windows, and here by luck none"},
    {"fractional_max_pool2d",  "(S(0), P(sum))",      "the numbers shift windows, and here by luck none"},
    {"group_norm",             "(R, P(sum), P(sum))", "linear in weight and bias, but mean and rstd are not Partial"},
    {"ihfft",                  "(P(sum))",            "padded first: linear where the value is zero; which it is does not decide"},
    {"index_by_mask",          "(P(sum), R)",         "how many rows a mask picks is not known beforehand"},
    {"index_by_mask",          "(S(0), S(0))",        "how many rows a mask picks is not known beforehand"},
    {"index_by_mask",          "(S(1), R)",           "how many rows a mask picks is not known beforehand"},
    {"index_reduce",           "(R, S(0), S(0))",     "a maximum with the tensor itself; other reductions would count it twice"},
    {"inverse",                "(S(0))",              "whether it failed is one answer for all ranks"},
    {"item",                   "(P(sum))",            "a number is one for all ranks"},
    {"layer_norm",             "(R, P(sum), P(sum))", "linear in weight and bias, but mean and rstd are not Partial"},
    {"layer_norm_3d",          "(R, P(sum), P(sum))", "linear in weight and bias, but mean and rstd are not Partial"},
    {"layer_norm_then_linear", "(R, P(sum), R)",      "linear in the weight, but mean and rstd are not Partial"},
    {"linear_3d",              "(S(1), R, R)",        "no placement says that the 3 of 2 x 3 merged rows is cut"},
    {"lu_factor",              "(S(0))",              "whether it failed is one answer for all ranks"},
    {"lu_solve",               "(S(0), S(0))",        "whether it failed is one answer for all ranks"},
    {"masked_select",          "(S(0))",              "how many elements a mask picks is not known beforehand"},
    {"max_dim",                "(S(1))",              "the indices would count from each rank's own first row"},
    {"nll_loss2d_each",        "(P(sum), R)",         "linear in the input, but the total weight is not Partial"},
    {"nonzero",                "(P(sum))",            "parts of a sum are not zero where the sum is not, by luck"},
    {"nonzero_none",           "(P(sum))",            "parts of a sum are not zero where the sum is not, by luck"},
    {"pad_circular",           "(P(sum))",            "new_empty of another size is whole"},
    {"pad_circular",           "(S(0))",              "new_empty of another size is whole"},
    {"pad_circular",           "(S(1))",              "new_empty of another size is whole"},
    {"pad_constant",           "(P(sum))",            "linear where the value is zero; which it is does not decide"},
    {"pad_constant_cut",       "(P(sum))",            "linear where the value is zero; which it is does not decide"},
    {"pad_constant_rows",      "(P(sum))",            "linear where the value is zero; which it is does not decide"},
    {"scatter_multiply",       "(P(sum), R, R)",      "linear where it multiplies alone"},
    {"scatter_reduce",         "(R, S(1), S(1))",     "a maximum with the tensor itself; other reductions would count it twice"},
    {"solve",                  "(R, P(sum))",         "linear in the second, but the factors of the first are not Partial"},
    {"solve",                  "(S(0), S(0))",        "whether it failed is one answer for all ranks"},
    {"solve_broadcast",        "(R, P(sum))",         "linear in the second, but the factors of the first are not Partial"},
    {"solve_right",            "(R, P(sum))",         "linear in the second, but the factors of the first are not Partial"},
    {"solve_right",            "(S(0), S(0))",        "whether it failed is one answer for all ranks"},
    {"solve_vectors",          "(R, P(sum))",         "linear in the second, but the factors of the first are not Partial"},
    {"solve_vectors",          "(S(0), S(0))",        "whether it failed is one answer for all ranks"},
    {"triangular_solve",       "(P(sum), R)",         "linear in the first, but the second, which it returns, is not Partial"},
    {"unique_of_booleans",     "(S(0))",              "both values stand in every part by luck"},
    {"upsample_nearest1d",     "(S(2))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest2d",     "(S(2))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest2d",     "(S(3))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest3d",     "(S(2))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest3d",     "(S(3))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest3d",     "(S(4))",              "the size it is asked for is that of the whole"},
    {"upsample_nearest_exact2d", "(S(2))",            "the size it is asked for is that of the whole"},
    {"upsample_nearest_exact2d", "(S(3))",            "the size it is asked for is that of the whole"},
};
// clang-format on

// Other values of the same kind, so that nothing holds by accident: no two are equal, none is whole.
Tensors drawn_like(const Tensors& inputs, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Tensors result;
  for (const at::Tensor& input : inputs) {
    if (input.is_floating_point()) {
      result.push_back(torch::rand(input.sizes(), generator, input.options()).mul(8).sub(4));
    } else if (input.scalar_type() == torch::kBool) {
      result.push_back(torch::rand(input.sizes(), generator) > 0.5);
    } else {
      const int64_t below = input.max().item<int64_t>() + 1;
      result.push_back(torch::randperm(input.numel(), generator, input.options()).remainder(below).view(input.sizes()));
    }
  }
  return result;
}

std::vector<Placement> choices_for(const at::Tensor& input) {
  std::vector<Placement> choices = {Replicate()};
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (input.size(d) >= kRanks) choices.push_back(Shard(d));
  }
  if (input.is_floating_point()) choices.push_back(Partial());
  return choices;
}

std::vector<Placements> combinations(const Tensors& inputs) {
  std::vector<Placements> all = {{}};
  for (const at::Tensor& input : inputs) {
    std::vector<Placements> longer;
    for (const Placements& list : all) {
      for (const Placement& p : choices_for(input)) {
        longer.push_back(list);
        longer.back().push_back(p);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// What each of the ranks holds of a tensor.
Tensors parts_of(const at::Tensor& whole, const Placement& placement) {
  if (is_replicate(placement)) return {whole.clone(), whole.clone()};
  if (is_partial(placement)) {
    const at::Tensor one = torch::rand_like(whole).mul(6).sub(3);
    return {one, whole - one};
  }
  Tensors parts;
  for (const at::Tensor& part : whole.chunk(kRanks, sharded_dim(placement))) parts.push_back(part.clone());
  return parts;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a.to(torch::kDouble), b.to(torch::kDouble), 1e-9, 1e-9, true);
}

// The placements under which two parts make a whole.
std::vector<std::string> readings(const at::Tensor& dense, const at::Tensor& a, const at::Tensor& b) {
  std::vector<std::string> found;
  if (a.sizes() == dense.sizes() && b.sizes() == dense.sizes()) {
    if (same(a, dense) && same(b, dense)) found.push_back("R");
    if (dense.is_floating_point()) {
      if (same(a + b, dense)) found.push_back("P(sum)");
      if (same((a + b) / 2, dense)) found.push_back("P(avg)");
    }
    if (same(torch::maximum(a, b), dense)) found.push_back("P(max)");
    if (same(torch::minimum(a, b), dense)) found.push_back("P(min)");
  }
  for (int64_t d = 0; d < dense.dim(); ++d) {
    if (a.dim() != dense.dim() || b.dim() != dense.dim()) break;
    at::IntArrayRef sizes = dense.sizes();
    bool fits = a.size(d) + b.size(d) == sizes[static_cast<size_t>(d)];
    for (int64_t other = 0; other < dense.dim(); ++other) {
      fits &= other == d || (a.size(other) == dense.size(other) && b.size(other) == dense.size(other));
    }
    if (fits && same(torch::cat({a, b}, d), dense)) found.push_back("S(" + std::to_string(d) + ")");
  }
  return found;
}

// For each output, how the ranks' results can be read; empty where one cannot.
using Readings = std::vector<std::vector<std::string>>;

Readings read_results(const OpSample& sample, const Tensors& inputs, const Placements& placements) {
  std::vector<Tensors> results;
  for (int rank = 0; rank < kRanks; ++rank) {
    Tensors local;
    for (size_t i = 0; i < inputs.size(); ++i) {
      torch::manual_seed(11 + i);  // the same parts for each rank
      local.push_back(parts_of(inputs[i], placements[i])[static_cast<size_t>(rank)]);
    }
    try {
      results.push_back(sample.run(local));
    } catch (const std::exception&) {
      return {};
    }
  }
  const Tensors dense = sample.run(inputs);
  Readings all;
  for (size_t i = 0; i < dense.size(); ++i) {
    if (results[0].size() != dense.size() || results[1].size() != dense.size()) return {};
    all.push_back(readings(dense[i], results[0][i], results[1][i]));
    if (all.back().empty()) return {};
  }
  return all;
}

// What holds for both.
Readings common(const Readings& a, const Readings& b) {
  if (a.size() != b.size()) return {};
  Readings both(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const std::string& reading : a[i]) {
      if (std::find(b[i].begin(), b[i].end(), reading) != b[i].end()) both[i].push_back(reading);
    }
    if (both[i].empty()) return {};
  }
  return both;
}

struct Valid {
  Placements placements;  // one per input
  std::string results;
};

std::vector<Valid> valid_combinations(const OpSample& sample) {
  std::vector<Valid> found;
  const Tensors one = drawn_like(sample.inputs, 1);
  const Tensors two = drawn_like(sample.inputs, 2);
  for (const Placements& placements : combinations(sample.inputs)) {
    const Readings first = read_results(sample, one, placements);
    if (first.empty()) continue;
    const Readings both = common(first, read_results(sample, two, placements));
    if (both.empty()) continue;
    std::string results;
    for (const auto& readings : both) results += (results.empty() ? "" : ", ") + readings.front();
    found.push_back({placements, results});
  }
  return found;
}

// Which of the combinations the engine does not run as they are, with what it says.
std::map<std::string, std::string> refused(const OpSample& sample, const std::vector<Valid>& valid) {
  std::map<std::string, std::string> result;
  spawn(kRanks,
        [&](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {kRanks}, {"a"});
          const at::NoGradGuard no_grad;
          for (const Valid& combination : valid) {
            Tensors inputs;
            for (size_t i = 0; i < sample.inputs.size(); ++i) {
              inputs.push_back(distribute_any(sample.inputs[i], mesh, {combination.placements[i]}));
            }
            std::string problem;
            try {
              const ExplicitRedistribution scope;
              sample.run(inputs);
            } catch (const c10::DistBackendError&) {
              throw;
            } catch (const c10::Error& error) {
              problem = error.what_without_backtrace();
            }
            if (world.rank() == 0 && !problem.empty()) {
              result[to_string(combination.placements)] =
                  "needs nothing, gives " + combination.results + "\n" + problem;
            }
          }
        },
        {.timeout = std::chrono::seconds(15)});
  return result;
}

// Most samples for the rest of the tables call many operators at once, which says little here: what one of them cannot,
// the sample cannot. Taken are those whose operators are cut alike.
std::vector<OpSample> audited() {
  std::vector<OpSample> all = op_samples();
  std::vector<OpSample> rest;
  add_rest_of_tables(rest);
  for (OpSample& sample : rest) {
    if (sample.name == "batch_norm_serving") all.push_back(std::move(sample));
  }
  return all;
}

TEST(AuditTest, TheTablesRefuseNothingThatNeedsNoCommunication) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<std::string, std::string>, bool> accepted;
  for (const Accepted& entry : kAccepted) accepted[{entry.sample, entry.placements}] = false;
  int checked = 0;
  for (const OpSample& sample : audited()) {
    const std::vector<Valid> valid = valid_combinations(sample);
    checked += static_cast<int>(valid.size());
    for (const auto& [placements, why] : refused(sample, valid)) {
      const auto known = accepted.find({sample.name, placements});
      if (known == accepted.end()) {
        ADD_FAILURE() << sample.name << " " << placements << " " << why;
      } else {
        known->second = true;
      }
    }
  }
  for (const auto& [entry, met] : accepted) {
    EXPECT_TRUE(met) << entry.first << " " << entry.second << ": the engine runs it as it is; take it off the list";
  }
  EXPECT_GT(checked, 200);
}

}  // namespace
}  // namespace sherd::testing
