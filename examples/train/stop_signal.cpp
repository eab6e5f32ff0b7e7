#include "stop_signal.h"

#include <torch/torch.h>

#include <csignal>

#include "sherd/collectives.h"

namespace {

volatile std::sig_atomic_t signal_here = 0;

void keep(int number) { signal_here = number; }

}  // namespace

void keep_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = keep;
  action.sa_flags = SA_RESTART;
  // Launchers may pass on what the terminal sent to all already: the second time means no more than the first.
  for (const int number : {SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
}

int stop_signal_of(const sherd::Group& group) {
  const at::Tensor number = torch::full({1}, static_cast<int64_t>(signal_here), torch::kLong);
  sherd::all_reduce(group, number, sherd::ReduceOp::max).wait();
  return static_cast<int>(number.item<int64_t>());
}
