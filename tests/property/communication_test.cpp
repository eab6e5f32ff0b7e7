// What operators along a sharded dim move: for each call and placement, which collectives a rank takes part in and how
// many bytes it receives at the most. Gathering the tensor would be more.

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "property/distribute_any.h"
#include "property/sample_tools.h"
#include "sherd/collectives.h"

namespace sherd::testing {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kDouble = 8;

struct Call {
  const char* name;
  std::vector<at::Tensor> inputs;
  const char* placements;  // one per input, on a mesh of four ranks
  std::function<Tensors(const Tensors&)> run;
  const char* collectives;  // in the order of their names
  int64_t most;             // bytes that a rank may receive
};

std::vector<Call> calls() {
  const auto one = [](auto f) { return [f](const Tensors& t) { return Tensors{f(t[0])}; }; };
  const at::Tensor x = ints({64, 8});
  const int64_t row = 8 * kDouble;
  const at::Tensor batch = ints({8, 4, 16, 8});
  const int64_t line = 8 * 4 * 8 * kDouble;  // one row of the images
  // clang-format off
  return {
      // Linear algebra and transforms of a sharded batch move nothing.
      {"fft", {x}, "S(0)", one([](auto& t) { return torch::fft_rfft(t); }), "", 0},
      {"upsample", {batch}, "S(1)", one([](auto& t) { return torch::upsample_nearest2d(t, {32, 16}); }), "", 0},
      {"qr", {ints({8, 3, 3}) + torch::eye(3, torch::kDouble) * 9}, "S(0)",
       one([](auto& t) { return std::get<1>(torch::linalg_qr(t)); }), "", 0},
      {"repeat", {x}, "S(0)", one([](auto& t) { return t.repeat({3, 1}); }), "", 0},
      // Scans: the other ranks' last rows.
      {"cumsum", {x}, "S(0)", one([](auto& t) { return t.cumsum(0); }), "all_gather", 3 * row},
      {"cumprod", {x}, "S(0)", one([](auto& t) { return t.cumprod(0); }), "all_gather", 3 * row},
      {"logcumsumexp", {x}, "S(0)", one([](auto& t) { return t.logcumsumexp(0); }), "all_gather", 3 * row},
      {"cummax", {x}, "S(0)", one([](auto& t) { return std::get<0>(t.cummax(0)); }), "all_gather", 3 * 2 * row},
      // Candidates: values and places, one per rank or k.
      {"max", {x}, "S(0)", one([](auto& t) { return std::get<0>(t.max(0)); }), "all_gather", 3 * 2 * row},
      {"argmin", {x}, "S(0)", one([](auto& t) { return t.argmin(0); }), "all_gather", 3 * 2 * row},
      {"argmax_of_all", {x}, "S(0)", one([](auto& t) { return t.argmax(); }), "all_gather", 3 * 2 * kDouble},
      {"topk", {x}, "S(0)", one([](auto& t) { return std::get<0>(t.topk(3, 0)); }), "all_gather", 3 * 3 * 2 * row},
      {"kthvalue", {x}, "S(0)", one([](auto& t) { return std::get<0>(t.kthvalue(2, 0)); }), "all_gather", 3 * 2 * 2 * row},
      {"sort", {torch::arange(4096, torch::kDouble).mul(1237).remainder(4099)}, "S(0)",
       one([](auto& t) { return std::get<0>(t.sort()); }), "all_gather, all_reduce, all_to_all", 2048 * kDouble},
      {"logsumexp", {x}, "S(0)", one([](auto& t) { return t.logsumexp(0); }), "all_reduce", 3 * row},
      // Rows that change hands: a rank receives no more than it will have.
      {"flip", {x}, "S(0)", one([](auto& t) { return t.flip({0}); }), "all_to_all", 16 * row},
      {"roll", {x}, "S(0)", one([](auto& t) { return t.roll({2}, {0}); }), "all_to_all", 2 * row},
      {"cat", {x, x}, "S(0), S(0)", [](const Tensors& t) { return Tensors{torch::cat({t[0], t[1]}, 0)}; }, "all_to_all", 32 * row},
      {"pad", {x}, "S(0)", one([](auto& t) { return torch::constant_pad_nd(t, {0, 0, 2, 2}); }), "all_to_all", 3 * row},
      // Halos: a row or two from each neighbour.
      {"conv2d", {batch, ints({6, 4, 3, 3}, 1)}, "S(2), R",
       [](const Tensors& t) { return Tensors{torch::conv2d(t[0], t[1], {}, 1, 1)}; }, "all_to_all", 3 * line},
      {"conv2d_backward", {batch, ints({6, 4, 3, 3}, 1)}, "S(2), R",
       [](const Tensors& t) {
         const at::Tensor image = t[0].detach().requires_grad_(true);
         torch::conv2d(image, t[1], {}, 1, 1).sum().backward();
         return Tensors{image.grad()};
       }, "all_to_all", 3 * 3 * line},
      {"max_pool2d", {batch}, "S(2)",
       one([](auto& t) { return std::get<0>(torch::max_pool2d_with_indices(t, 3, 2, 1)); }), "all_to_all", 2 * line},
      {"avg_pool2d", {batch}, "S(2)", one([](auto& t) { return torch::avg_pool2d(t, 2); }), "", 0},
      // Rows that are written by index are written by their owner.
      {"index_put", {x, index({3}, 64), ints({3, 8}, 1)}, "S(0), R, R",
       [](const Tensors& t) { return Tensors{t[0].index_put({t[1]}, t[2])}; }, "", 0},
      {"index_add", {x, index({3}, 64), ints({3, 8}, 1)}, "S(0), R, R",
       [](const Tensors& t) { return Tensors{(t[0] * 1).index_add_(0, t[1], t[2])}; }, "", 0},
      {"scatter", {x, index({3, 8}, 64), ints({3, 8}, 1)}, "S(0), R, R",
       [](const Tensors& t) { return Tensors{t[0].scatter(0, t[1], t[2])}; }, "", 0},
      {"index_select", {x, index({3}, 64)}, "S(0), R",
       [](const Tensors& t) { return Tensors{t[0].index_select(0, t[1])}; }, "", 0},
      {"gather", {x, index({2, 8}, 64)}, "S(0), R", [](const Tensors& t) { return Tensors{t[0].gather(0, t[1])}; }, "", 0},
      {"foreach_norm", {x, x}, "S(0), S(1)", [](const Tensors& t) { return torch::_foreach_norm(t); }, "all_reduce", 2 * 2 * 6 * kDouble},
      // Sums per channel.
      {"batch_norm", {batch}, "S(0)",
       one([](auto& t) { return torch::batch_norm(t, {}, {}, {}, {}, true, 0.1, 1e-5, false); }), "all_reduce",
       3 * 2 * 2 * 4 * kDouble},
      // What was found, or how much of it.
      {"nonzero", {x}, "S(0)", one([](auto& t) { return t.nonzero(); }), "all_gather", 3 * kDouble},
      {"masked_select", {x}, "S(0)", one([](auto& t) { return t.masked_select(t > 0); }), "all_gather", 3 * kDouble},
      {"histc", {x}, "S(0)", one([](auto& t) { return t.histc(5, -4, 4); }), "", 0},
      {"bincount", {index({64}, 7)}, "S(0)", one([](auto& t) { return t.bincount(); }), "all_reduce", 2 * 2 * 3 * kDouble},
      {"unique", {index({64}, 7)}, "S(0)",
       one([](auto& t) { return std::get<0>(torch::_unique2(t, true, false, false)); }), "all_gather", 3 * (1 + 2 * 7) * kDouble},
      // Without a rule, but made of operators that have one.
      {"bce_with_logits", {x, x.sigmoid()}, "S(0), S(0)",
       [](const Tensors& t) { return Tensors{torch::binary_cross_entropy_with_logits(t[0], t[1])}; }, "", 0},
      {"rot90", {x}, "S(1)", one([](auto& t) { return t.rot90(2); }), "all_to_all", 2 * 64 * kDouble},
  };
  // clang-format on
}

class EveryCall : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryCall, MovesNoMoreThanItsResultNeeds) {
  const Call call = calls()[GetParam()];
  const Placements placements = parse_placements("(" + std::string(call.placements) + ")");
  std::mutex mutex;
  spawn(kRanks,
        [&](World&) {
          const DeviceMesh mesh = init_device_mesh("cpu", {kRanks}, {"a"});
          Tensors inputs;
          for (size_t i = 0; i < call.inputs.size(); ++i) {
            inputs.push_back(distribute_any(call.inputs[i], mesh, {placements[i]}));
          }
          CommRecorder recorder;
          const Tensors results = call.run(inputs);
          std::vector<std::string> names;
          for (const CollectiveCall& made : recorder.calls()) names.push_back(made.name);
          std::sort(names.begin(), names.end());
          names.erase(std::unique(names.begin(), names.end()), names.end());
          std::string used;
          for (const std::string& name : names) used += (used.empty() ? "" : ", ") + name;
          const std::lock_guard lock(mutex);
          EXPECT_EQ(used, call.collectives) << recorder.to_string();
          EXPECT_LE(recorder.bytes(), call.most) << recorder.to_string();
        },
        {.timeout = std::chrono::seconds(15)});
}

INSTANTIATE_TEST_SUITE_P(Calls, EveryCall, ::testing::Range<size_t>(0, calls().size()),
                         [](const ::testing::TestParamInfo<size_t>& call) { return calls()[call.param].name; });

}  // namespace
}  // namespace sherd::testing
