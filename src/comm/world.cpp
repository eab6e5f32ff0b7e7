#include "sherd/world.h"

#include <c10/core/AutogradState.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "comm/arguments.h"
#include "comm/errors.h"
#include "comm/rank_list.h"
#include "comm/rpc.h"
#include "comm/settings.h"
#include "comm/world_state.h"
#include "sherd/box.h"

namespace sherd {
namespace detail {
namespace {

thread_local std::shared_ptr<WorldState> this_threads_world;

}  // namespace

std::shared_ptr<WorldState> exchange_thread_world(std::shared_ptr<WorldState> world) {
  return std::exchange(this_threads_world, std::move(world));
}

std::shared_ptr<WorldState> thread_world() { return this_threads_world; }

WorldState::WorldState(Link link, BackendConfig backends)
    : link_(std::make_shared<const Link>(std::move(link))),
      backends_(std::move(backends)),
      background_([this](const std::string& message) { fail_in_background(message); }) {}

WorldState::~WorldState() { end_rpc(); }

std::shared_ptr<GroupState> WorldState::group(std::vector<int64_t> ranks, const std::string& backend) {
  if (ranks.empty()) {
    throw_value_error(ErrorText("group", "no rank is named").fact("ranks", "[]").help("world.group({0, 1})"));
  }
  for (const int64_t rank : ranks) {
    if (rank >= 0 && rank < link_->size) continue;
    throw_value_error(ErrorText("group", "a rank is not in the world")
                          .fact("rank", std::to_string(rank))
                          .fact("world", rank_count(link_->size))
                          .help("ranks go from 0 to " + std::to_string(link_->size - 1)));
  }
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw_value_error(
        ErrorText("group", "a rank is named twice").fact("ranks", to_string(ranks)).help("name each rank once"));
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), link_->rank)) {
    throw_value_error(ErrorText("group", "this rank is not among the members")
                          .fact("rank", std::to_string(link_->rank))
                          .fact("members", rank_list(ranks))
                          .help("make a group on its members alone"));
  }
  const BackendConfig config = backend.empty() ? backends_ : BackendConfig::parse(backend);
  const std::lock_guard lock(groups_mutex_);
  auto& state = groups_[{ranks, config.text()}];
  if (!state) state = std::make_shared<GroupState>(link_, std::move(ranks), config);
  return state;
}

void WorldState::finish() {
  saves_.stop();
  background_.stop();
  background_.rethrow_unheard();
}

void WorldState::fail(const std::string& message) {
  link_->post_failure(message);
  close(kLeftByFailure);
  // What these remember may hold the world.
  background_.end();
  saves_.end();
}

void WorldState::fail_in_background(const std::string& message) {
  link_->post_failure(message);
  const std::lock_guard lock(groups_mutex_);
  for (auto& [key, group] : groups_) group->close_lane(kBackgroundLane, kLeftByFailure);
}

void WorldState::close(const char* reason, bool in_good_order) {
  end_rpc();
  const std::lock_guard lock(groups_mutex_);
  for (auto& [key, group] : groups_) group->close(reason, in_good_order);
}

std::shared_ptr<Rpc> WorldState::rpc() const {
  const std::lock_guard lock(rpc_mutex_);
  return rpc_;
}

void WorldState::set_rpc(std::shared_ptr<Rpc> rpc) {
  const std::lock_guard lock(rpc_mutex_);
  rpc_ = std::move(rpc);
}

void WorldState::end_rpc() {
  std::shared_ptr<Rpc> ended;
  {
    const std::lock_guard lock(rpc_mutex_);
    ended = std::exchange(rpc_, nullptr);
  }
  if (ended) ended->stop();
}

void WorldState::end() {
  end_rpc();
  const std::lock_guard lock(groups_mutex_);
  for (auto& [key, group] : groups_) group->end();
}

}  // namespace detail

int World::rank() const { return state_->link().rank; }
int World::size() const { return state_->link().size; }
int World::local_rank() const { return state_->link().local_rank; }
int World::local_size() const { return state_->link().local_size; }
bool World::checks_calls() const { return state_->link().check; }
std::chrono::milliseconds World::timeout() const { return state_->link().timeout; }
void World::fail(std::string_view message) const { state_->fail(std::string(message)); }
void World::close() const {
  std::exception_ptr unheard;
  try {
    state_->finish();
  } catch (...) {
    unheard = std::current_exception();
  }
  state_->close("this rank has closed its world", true);
  if (unheard) std::rethrow_exception(unheard);
}

Group World::group() const {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(ranks);
}

Group World::group(const std::vector<int64_t>& ranks, const std::string& backend) const {
  return Group(state_->group(ranks, backend));
}

void World::use_backend(const std::vector<int64_t>& ranks, c10::DeviceType device,
                        c10::intrusive_ptr<c10d::Backend> backend) const {
  detail::check_members("use_backend", ranks, backend->getSize());
  const auto state = state_->group(ranks, "");
  if (!state->has_transport(device)) state->set_backend(device, std::move(backend));
}

World fake_world(int rank, int size) {
  if (rank < 0 || rank >= size) {
    detail::throw_value_error(ErrorText("fake_world", "there is no such rank")
                                  .fact("rank", std::to_string(rank))
                                  .fact("world", detail::rank_count(size))
                                  .help("fake_world(0, 4)"));
  }
  detail::Link link;
  link.rank = rank;
  link.size = size;
  link.local_rank = rank;
  link.local_size = size;
  link.timeout = detail::settings().timeout;
  return World(std::make_shared<detail::WorldState>(std::move(link), detail::BackendConfig::parse("fake")));
}

World current_world() {
  if (auto world = find_world()) return *world;
  return init();
}

WorldScope::WorldScope(const World& world) : outer_(detail::exchange_thread_world(world.state())) {}
WorldScope::~WorldScope() { detail::exchange_thread_world(std::move(outer_)); }

}  // namespace sherd
