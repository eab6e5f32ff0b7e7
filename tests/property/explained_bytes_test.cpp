// What `sherd explain` says of operators along a sharded dim is what they do: on several meshes and sizes, the bytes
// that the busiest rank receives, and the placements of the first result.

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "property/distribute_any.h"
#include "property/sample_tools.h"
#include "sherd/collectives.h"
#include "sherd/explain.h"

namespace sherd::testing {
namespace {

using Arguments = std::vector<std::pair<std::string, ArgumentValue>>;
using Run = std::function<at::Tensor(const Tensors&)>;

struct Told {
  const char* name;
  const char* op;  // as explain knows it
  Arguments arguments;
  Run run;
  std::vector<std::vector<const char*>> layouts;  // a mesh, then the operands; "-" for one that is left out
};

Dims list(std::initializer_list<int64_t> numbers) { return numbers; }

std::vector<Told> all_told() {
  const std::vector<std::vector<const char*>> rows = {{"[a=4]", "f64[64@a, 8]"},
                                                      {"[a=3]", "f32[16@a, 5]"},
                                                      {"[a=2, b=2]", "f64[24@a@b, 3]"},
                                                      {"[a=2, b=2]", "f32[16@a, 6@b]"},
                                                      {"[a=2, b=2]", "f64[12@a, 4] P(sum)@b"},
                                                      {"[a=2, b=2]", "f64[18@b, 3]"}};
  const std::vector<std::vector<const char*>> images = {{"[a=4]", "f64[2, 3, 16@a, 8]"},
                                                        {"[a=3]", "f32[2, 3, 13@a, 8]"},
                                                        {"[a=2, b=2]", "f64[4, 3, 16@a, 12@b]"},
                                                        {"[a=2, b=2]", "f32[4@a, 3, 8, 12@b]"}};
  std::vector<std::vector<const char*>> filtered = images;
  for (auto& layout : filtered)
    layout.push_back(layout[1][0] == 'f' && layout[1][1] == '6' ? "f64[5, 3, 3, 3]" : "f32[5, 3, 3, 3]");
  filtered.push_back({"[a=2, b=2]", "f64[2, 3, 16@a, 8]", "f64[6@b, 3, 3, 3]"});
  const std::vector<std::vector<const char*>> numbers = {{"[a=4]", "i64[64@a]"}, {"[a=2, b=2]", "i64[32@a@b]"}};
  const std::vector<std::vector<const char*>> indexed = {{"[a=4]", "f64[64@a, 8]", "i64[3]", "f64[3, 8]"},
                                                         {"[a=3]", "f32[16@a, 5]", "i64[6@a]", "f32[6@a, 5]"},
                                                         {"[a=2, b=2]", "f64[16@a, 6@b]", "i64[4]", "f64[4, 6]"}};
  const std::vector<std::vector<const char*>> scattered = {{"[a=4]", "f64[64@a, 8]", "i64[3, 8]", "f64[3, 8]"},
                                                           {"[a=3]", "f32[16@a, 5]", "i64[6@a, 5]", "f32[6@a, 5]"},
                                                           {"[a=2, b=2]", "f64[16@a, 6@b]", "i64[4, 6]", "f64[4, 6]"}};
  const Arguments first = {{"dim", int64_t{0}}};
  const Arguments over_first = {{"dim", list({0})}};
  // clang-format off
  return {
      {"cumsum", "cumsum", first, [](auto& t) { return t[0].cumsum(0); }, rows},
      {"cumprod", "cumprod", first, [](auto& t) { return t[0].cumprod(0); }, rows},
      {"logcumsumexp", "logcumsumexp", first, [](auto& t) { return t[0].logcumsumexp(0); }, rows},
      {"cumsum_of_integers", "cumsum", first, [](auto& t) { return t[0].cumsum(0); }, {{"[a=4]", "i32[16@a, 3]"}}},
      {"cummax", "cummax", first, [](auto& t) { return std::get<0>(t[0].cummax(0)); }, rows},
      {"softmax", "softmax", first, [](auto& t) { return t[0].softmax(0); }, rows},
      {"softmax_of_halves", "softmax", first, [](auto& t) { return t[0].softmax(0); }, {{"[a=4]", "bf16[16@a, 3]"}}},
      {"log_softmax", "log_softmax", first, [](auto& t) { return t[0].log_softmax(0); }, rows},
      {"logsumexp", "logsumexp", over_first, [](auto& t) { return t[0].logsumexp({0}); }, rows},
      {"norm", "linalg_vector_norm", {{"ord", int64_t{2}}, {"dim", list({0})}},
       [](auto& t) { return torch::linalg_vector_norm(t[0], 2, {{0}}); }, rows},
      {"var", "var", over_first, [](auto& t) { return torch::var(t[0], {{0}}, 1); }, rows},
      {"std", "std", over_first, [](auto& t) { return torch::std(t[0], {{0}}, 1); }, rows},
      {"mean", "mean", over_first, [](auto& t) { return t[0].mean({0}); }, rows},
      {"aminmax", "aminmax", first, [](auto& t) { return std::get<0>(torch::aminmax(t[0], 0)); }, rows},
      {"max", "max", first, [](auto& t) { return std::get<0>(t[0].max(0)); }, rows},
      {"argmax", "argmax", first, [](auto& t) { return t[0].argmax(0); }, rows},
      {"argmax_of_all", "argmax", {}, [](auto& t) { return t[0].argmax(); }, rows},
      {"topk", "topk", {{"k", int64_t{2}}, {"dim", int64_t{0}}}, [](auto& t) { return std::get<0>(t[0].topk(2, 0)); }, rows},
      {"kthvalue", "kthvalue", {{"k", int64_t{1}}, {"dim", int64_t{0}}},
       [](auto& t) { return std::get<0>(t[0].kthvalue(1, 0)); }, rows},
      {"median", "median", first, [](auto& t) { return std::get<0>(t[0].median(0)); }, {{"[a=4]", "f64[64@a, 8]"}, {"[a=4]", "f32[16@a]"}}},
      {"sort_by_samples", "sort", {}, [](auto& t) { return std::get<0>(t[0].sort()); },
       {{"[a=4]", "f64[4096@a]"}, {"[a=3]", "i32[1000@a]"}, {"[a=2, b=2]", "f32[600@a@b]"}}},
      {"sort_of_rows", "sort", first, [](auto& t) { return std::get<0>(t[0].sort(0)); }, {{"[a=4]", "f64[64@a, 8]"}}},
      {"flip", "flip", {{"dims", list({0})}}, [](auto& t) { return t[0].flip({0}); }, rows},
      {"flip_both", "flip", {{"dims", list({0, 1})}}, [](auto& t) { return t[0].flip({0, 1}); }, rows},
      {"roll", "roll", {{"shifts", list({2})}, {"dims", list({0})}}, [](auto& t) { return t[0].roll({2}, {0}); }, rows},
      {"pad", "constant_pad_nd", {{"pad", list({1, 0, 2, 3})}},
       [](auto& t) { return torch::constant_pad_nd(t[0], {1, 0, 2, 3}); }, rows},
      {"slice", "slice", {{"dim", int64_t{0}}, {"start", int64_t{1}}, {"end", int64_t{9}}},
       [](auto& t) { return t[0].slice(0, 1, 9); }, {{"[a=4]", "f64[64@a, 8]"}, {"[a=3]", "f32[16@a, 5]"}}},
      {"select", "select", {{"dim", int64_t{0}}, {"index", int64_t{5}}}, [](auto& t) { return t[0].select(0, 5); }, rows},
      {"split", "split", {{"split_size", int64_t{5}}, {"dim", int64_t{0}}}, [](auto& t) { return t[0].split(5, 0)[0]; }, rows},
      {"unbind", "unbind", first, [](auto& t) { return t[0].unbind(0)[0]; }, {{"[a=4]", "f64[8@a, 8]"}, {"[a=3]", "f32[7@a, 5]"}}},
      {"cat", "cat", first, [](auto& t) { return torch::cat({t[0], t[1]}, 0); },
       {{"[a=4]", "f64[64@a, 8]", "f64[64@a, 8]"}, {"[a=3]", "f32[7@a, 5]", "f32[4, 5]"}, {"[a=3]", "f32[7, 5]", "f32[4@a, 5]"},
        {"[a=2, b=2]", "f64[8@a, 6@b]", "f64[4@a, 6@b]"}}},
      {"stack", "stack", first, [](auto& t) { return torch::stack({t[0], t[1]}, 0); }, {{"[a=4]", "f64[64@a, 8]", "f64[64@a, 8]"}}},
      {"conv2d", "conv2d", {{"stride", list({1})}, {"padding", list({1})}}, [](auto& t) { return torch::conv2d(t[0], t[1], {}, 1, 1); }, filtered},
      {"conv2d_with_strides", "conv2d", {{"stride", list({2})}, {"dilation", list({2})}},
       [](auto& t) { return torch::conv2d(t[0], t[1], {}, {2, 2}, at::IntArrayRef{0, 0}, {2, 2}); }, filtered},
      {"convolution_backward", "convolution_backward", {{"stride", list({1, 1})}, {"padding", list({1, 1})}},
       [](auto& t) {
         return std::get<0>(torch::convolution_backward(t[0], t[1], t[2], {{5}}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, {true, true, true}));
       },
       {{"[a=4]", "f64[2, 5, 16@a, 8]", "f64[2, 3, 16@a, 8]", "f64[5, 3, 3, 3]"},
        {"[a=2, b=2]", "f64[2, 5, 16@a, 8@b]", "f64[2, 3, 16@a, 8@b]", "f64[5, 3, 3, 3]"}}},
      {"softmax_backward", "_softmax_backward_data", first,
       [](auto& t) { return torch::_softmax_backward_data(t[0], t[1], 0, t[1].scalar_type()); },
       {{"[a=4]", "f64[64@a, 8]", "f64[64@a, 8]"}, {"[a=2, b=2]", "f32[16@a, 6@b]", "f32[16@a, 6@b]"}}},
      {"avg_pool2d_backward", "avg_pool2d_backward", {{"kernel_size", list({3})}, {"stride", list({1})}, {"padding", list({1})}},
       [](auto& t) { return torch::avg_pool2d_backward(t[0], t[1], {3, 3}, {1, 1}, {1, 1}, false, true, std::nullopt); },
       {{"[a=4]", "f64[2, 3, 16@a, 8]", "f64[2, 3, 16@a, 8]"}, {"[a=2, b=2]", "f64[2@b, 3, 16@a, 8]", "f64[2@b, 3, 16@a, 8]"}}},
      {"max_pool2d", "max_pool2d", {{"kernel_size", list({3})}, {"stride", list({2})}, {"padding", list({1})}},
       [](auto& t) { return std::get<0>(torch::max_pool2d_with_indices(t[0], 3, 2, 1)); }, images},
      {"avg_pool2d", "avg_pool2d", {{"kernel_size", list({2})}}, [](auto& t) { return torch::avg_pool2d(t[0], 2); }, images},
      {"batch_norm", "batch_norm", {{"training", true}},
       [](auto& t) { return torch::batch_norm(t[0], {}, {}, {}, {}, true, 0.1, 1e-5, false); },
       {{"[a=4]", "f64[8@a, 3, 4]"}, {"[a=3]", "f32[8@a, 3, 4]"}, {"[a=2, b=2]", "f64[8@a, 4@b, 6]"}, {"[a=2, b=2]", "f64[8@a, 4, 6@b]"}}},
      {"batch_norm_backward", "native_batch_norm_backward", {{"train", true}},
       [](auto& t) {
         return std::get<0>(torch::native_batch_norm_backward(t[0], t[1], t[2], {}, {}, t[3], t[4], true, 1e-5, {true, true, true}));
       },
       {{"[a=4]", "f64[8@a, 3, 4]", "f64[8@a, 3, 4]", "f64[3]", "-", "-", "f64[3]", "f64[3]"},
        {"[a=2, b=2]", "f64[8@a, 4, 6@b]", "f64[8@a, 4, 6@b]", "f64[4]", "-", "-", "f64[4]", "f64[4]"}}},
      {"nonzero", "nonzero", {}, [](auto& t) { return t[0].nonzero(); }, {{"[a=4]", "f64[64@a, 8]"}, {"[a=2, b=2]", "f32[16@a@b]"}}},
      {"masked_select", "masked_select", {}, [](auto& t) { return t[0].masked_select(t[1]); },
       {{"[a=4]", "f64[64@a, 8]", "bool[64@a, 8]"}, {"[a=3]", "f32[16@a, 5]", "bool[16, 5]"}, {"[a=2]", "f32[16, 4]", "bool[16@a, 4]"}}},
      {"bincount", "bincount", {}, [](auto& t) { return t[0].bincount(); }, numbers},
      {"histc", "histc", {{"bins", int64_t{5}}, {"min", int64_t{-4}}, {"max", int64_t{4}}}, [](auto& t) { return t[0].histc(5, -4, 4); },
       {{"[a=4]", "f64[64@a, 8]"}, {"[a=3]", "f32[16@a, 5]"}, {"[a=2, b=2]", "f32[16@a, 6@b]"}}},
      {"histc_without_range", "histc", {{"bins", int64_t{5}}}, [](auto& t) { return t[0].histc(5); },
       {{"[a=4]", "f64[64@a, 8]"}, {"[a=2, b=2]", "f32[16@a, 6@b]"}}},
      {"unique", "unique", {}, [](auto& t) { return std::get<0>(torch::_unique2(t[0], true, false, false)); }, numbers},
      {"index_put", "index_put", {}, [](auto& t) { return t[0].index_put({t[1]}, t[2]); },
       {{"[a=4]", "f64[64@a, 8]", "i64[3]", "f64[3, 8]"}, {"[a=3]", "f32[16@a, 5]", "i64[6@a]", "f32[6@a, 5]"}}},
      {"index_add", "index_add", first, [](auto& t) { return t[0].index_add(0, t[1], t[2]); }, indexed},
      {"scatter", "scatter", first, [](auto& t) { return t[0].scatter(0, t[1], t[2]); }, scattered},
      {"scatter_reduce", "scatter_reduce", first, [](auto& t) { return t[0].scatter_reduce(0, t[1], t[2], "amax"); }, scattered},
      {"index_select", "index_select", first, [](auto& t) { return t[0].index_select(0, t[1]); },
       {{"[a=4]", "f64[64@a, 8]", "i64[3]"}, {"[a=3]", "f32[16@a, 5]", "i64[6@a]"}, {"[a=2, b=2]", "f64[16@a, 6@b]", "i64[4]"}}},
      {"gather", "gather", first, [](auto& t) { return t[0].gather(0, t[1]); }, {{"[a=4]", "f64[64@a, 8]", "i64[3, 8]"}}},
      {"fft", "_fft_r2c", {{"dim", list({1})}, {"normalization", int64_t{0}}, {"onesided", true}}, [](auto& t) { return torch::fft_rfft(t[0]); }, {{"[a=4]", "f64[64@a, 8]"}}},
      {"cholesky", "linalg_cholesky_ex", {}, [](auto& t) { return std::get<0>(torch::linalg_cholesky_ex(t[0])); }, {{"[a=4]", "f64[8@a, 3, 3]"}}},
  };
  // clang-format on
}

at::Tensor filled(const TensorText& text, int64_t salt) {
  if (text.dtype == "i64" || text.dtype == "i32") {
    return index(text.shape, 7).to(text.dtype == "i64" ? torch::kLong : torch::kInt);
  }
  const at::Tensor numbers = ints(text.shape, salt);
  if (text.dtype == "bool") return numbers.gt(0);
  return numbers.to(text.dtype == "f64" ? torch::kDouble : text.dtype == "f32" ? torch::kFloat : torch::kBFloat16);
}

struct Found {
  std::vector<int64_t> bytes;  // of each rank
  std::string calls;
  std::string result;
};

Found run(const Told& told, const Mesh& mesh, const std::vector<std::optional<TensorText>>& operands) {
  std::mutex mutex;
  Found found;
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  spawn(static_cast<int>(mesh.size()),
        [&](World& world) {
          const DeviceMesh device_mesh = init_device_mesh("cpu", mesh.shape(), names);
          Tensors inputs;
          for (const auto& operand : operands) {
            if (!operand) continue;
            inputs.push_back(distribute_any(filled(*operand, static_cast<int64_t>(inputs.size())), device_mesh,
                                            operand->placements));
          }
          CommRecorder recorder;
          const at::Tensor result = told.run(inputs);
          const std::lock_guard lock(mutex);
          found.bytes.push_back(recorder.bytes());
          if (world.rank() == 0) {
            found.calls = recorder.to_string();
            found.result = sherd::to_string(result);
          }
        },
        {.timeout = std::chrono::seconds(15)});
  return found;
}

class EveryTold : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryTold, MovesWhatExplainSays) {
  const Told told = all_told()[GetParam()];
  for (const auto& layout : told.layouts) {
    const Mesh mesh = parse_mesh(layout[0]);
    OperatorCall call{.op = told.op, .operands = {}, .arguments = told.arguments};
    std::string text = layout[0];
    for (size_t i = 1; i < layout.size(); ++i) {
      const bool left_out = std::string(layout[i]) == "-";
      call.operands.push_back(left_out ? std::nullopt : std::optional(parse_tensor(layout[i], mesh)));
      text += " " + std::string(layout[i]);
    }
    SCOPED_TRACE(text);
    const Explanation e = explain(call, mesh);
    const Found found = run(told, mesh, call.operands);
    const int64_t most = *std::max_element(found.bytes.begin(), found.bytes.end());
    if (e.least == e.bytes) {
      EXPECT_EQ(most, e.bytes) << found.calls << to_string(e);
    } else {
      EXPECT_LE(most, e.bytes) << found.calls << to_string(e);
      EXPECT_GE(most, e.least) << found.calls << to_string(e);
    }
    ASSERT_FALSE(e.outputs.empty());
    const bool known =
        std::none_of(e.outputs[0].shape.begin(), e.outputs[0].shape.end(), [](int64_t n) { return n < 0; });
    if (known) {
      EXPECT_EQ(found.result, to_string(e.outputs[0], mesh) + " on " + to_string(mesh));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, EveryTold, ::testing::Range<size_t>(0, all_told().size()),
                         [](const ::testing::TestParamInfo<size_t>& told) { return all_told()[told.param].name; });

}  // namespace
}  // namespace sherd::testing
