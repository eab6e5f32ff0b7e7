#pragma once
// The time of a call that all ranks of a group make.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "sherd/collectives.h"

/// The mean over some calls in a row, as rank 0 sees it; the best of three such means, in about `seconds` in all. All
/// ranks make the same number of calls.
inline double time_of(const sherd::Group& group, const std::function<void()>& call, double seconds) {
  const auto run = [&](int64_t calls) {
    sherd::barrier(group);
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    sherd::barrier(group);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(calls);
  };
  run(1);
  const at::Tensor calls = at::zeros({1}, at::kLong);
  calls[0] = static_cast<int64_t>(std::clamp(seconds / 3 / run(1), 1.0, 10000.0));
  sherd::broadcast(group, calls, 0).wait();
  double best = 1e9;
  for (int i = 0; i < 3; ++i) best = std::min(best, run(calls.item<int64_t>()));
  return best;
}
