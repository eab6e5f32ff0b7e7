// The costs of communication that plans go by: the user's, measured ones, or those of one host over TCP.

#include "tensor/costs.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/errors.h"
#include "comm/settings.h"
#include "sherd/collectives.h"
#include "sherd/redistribute.h"

namespace sherd {
namespace {

std::mutex mutex;
std::optional<CommCosts> set_by_program;
std::atomic<uint64_t> version = 0;
thread_local std::optional<detail::CostsNow> this_threads_costs;

// The time of one exchange in which a rank receives `bytes` from each other, as the slowest rank sees it.
double exchange_seconds(const Group& group, int64_t bytes, int calls) {
  const int64_t numel = (bytes + 3) / 4 * group.size();
  const at::Tensor in = at::zeros({numel});
  const at::Tensor out = at::zeros({numel});
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    barrier(group);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) all_to_all(group, out, in).wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
    best = run == 0 ? seconds : std::min(best, seconds);
  }
  const at::Tensor slowest = at::zeros({1}, at::kDouble).fill_(best);
  all_reduce(group, slowest, ReduceOp::max).wait();
  return slowest.item<double>();
}

}  // namespace

detail::CostsNow detail::costs_now() {
  if (this_threads_costs) return *this_threads_costs;
  static const CommCosts from_outside = [] {
    const std::string& text = settings().costs;
    return text.empty() ? CommCosts() : as_c10_errors([&] { return parse_costs(text); });
  }();
  const std::lock_guard lock(mutex);
  return {set_by_program.value_or(from_outside), version.load(std::memory_order_relaxed)};
}

void set_costs(const CommCosts& costs) {
  const std::lock_guard lock(mutex);
  if (set_by_program == costs) return;
  set_by_program = costs;
  ++version;
}

uint64_t detail::costs_version() {
  return this_threads_costs ? this_threads_costs->version : version.load(std::memory_order_relaxed);
}

detail::CostsScope::CostsScope(const CostsNow& costs) : outer_(std::exchange(this_threads_costs, costs)) {}
detail::CostsScope::~CostsScope() { this_threads_costs = outer_; }

CommCosts measure_costs(const World& world) {
  const Group all = world.group();
  if (all.size() < 2) {
    detail::throw_value_error(ErrorText("measure_costs", "one rank has nobody to talk to")
                                  .fact("world", "1 rank")
                                  .help("sherd calibrate -n 4"));
  }
  constexpr int64_t kLarge = int64_t{4} << 20;
  const int64_t others = all.size() - 1;
  const double small = exchange_seconds(all, 4, 50);
  const double large = exchange_seconds(all, kLarge, 3);
  CommCosts costs;
  costs.byte = std::max(0.0, (large - small) / static_cast<double>(others * kLarge));
  // Two ranks alone send one message each; the rest of what all need is for the messages that they send more.
  double pair = small;
  if (others > 1) {
    if (world.rank() < 2) pair = exchange_seconds(world.group({0, 1}), 4, 50);
    const at::Tensor shared = at::zeros({1}, at::kDouble).fill_(pair);
    broadcast(all, shared, 0).wait();
    pair = std::min(shared.item<double>(), small);
    costs.message = (small - pair) / static_cast<double>(others - 1);
  } else {
    costs.message = small / 2;
  }
  costs.call = std::max(0.0, pair - costs.message);
  return costs;
}

}  // namespace sherd
