#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <atomic>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/errors.h"
#include "comm/settings.h"
#include "comm/world_state.h"
#include "sherd/world.h"

namespace sherd {
namespace {

detail::Link link_of(int rank, int n, const WorldOptions& options, c10::intrusive_ptr<c10d::Store> store,
                     std::shared_ptr<detail::ThreadHubs> hubs) {
  detail::Link link;
  link.rank = rank;
  link.size = n;
  link.local_rank = rank;
  link.local_size = n;
  link.timeout = detail::timeout_of(options);
  link.check = options.check || detail::settings().check;
  link.store = std::move(store);
  link.hubs = std::move(hubs);
  return link;
}

// Autograd's settings of a rank's thread. Backward runs in the thread that called it: ranks would share one thread per
// GPU otherwise, and a collective in backward would wait for ever.
void set_up_autograd() {
  auto& autograd = c10::AutogradState::get_tls_state();
  autograd.set_multithreading_enabled(false);
  autograd.set_view_replay_enabled(true);
}

}  // namespace

void spawn(int n, const std::function<void(World&)>& fn, const WorldOptions& options) {
  if (n < 1) {
    detail::throw_value_error(ErrorText("spawn", "the number of ranks must be at least 1")
                                  .fact("given", std::to_string(n))
                                  .help("sherd::spawn(4, fn)"));
  }
  const auto backends = detail::BackendConfig::parse(options.backend.empty() ? "threads" : options.backend);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto hubs = std::make_shared<detail::ThreadHubs>(detail::timeout_of(options));

  const int threads_before = at::get_num_threads();
  const int threads_each = std::max(1, threads_before / n);
  std::atomic<int> first_failed{-1};
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  const auto run_rank = [&](int rank) {
    World world(std::make_shared<detail::WorldState>(link_of(rank, n, options, store, hubs), backends));
    const WorldScope scope(world);
    try {
      at::set_num_threads(threads_each);
      set_up_autograd();
      fn(world);
      world.state()->finish();
      world.state()->link().post_end();
      world.state()->end_rpc();
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      int none = -1;
      first_failed.compare_exchange_strong(none, rank);
      world.fail(detail::message_of_current_exception());
    }
  };
  // A rank may have told the others of its failure (World::fail) before its exception came here, and theirs before it.
  const auto first_to_fail = [&] {
    const auto told = link_of(0, n, options, store, hubs).find_failure();
    return told && errors[static_cast<size_t>(told->first)] ? static_cast<int>(told->first) : first_failed.load();
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(n));
  std::exception_ptr no_thread;
  try {
    for (int rank = 0; rank < n; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) {  // the ranks that did start must not wait for the others
    no_thread = std::current_exception();
    link_of(static_cast<int>(threads.size()), n, options, store, hubs)
        .post_failure(detail::message_of_current_exception());
  }
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(threads_before);
  if (no_thread) std::rethrow_exception(no_thread);
  if (const int failed = first_to_fail(); failed >= 0) std::rethrow_exception(errors[static_cast<size_t>(failed)]);
}

}  // namespace sherd
