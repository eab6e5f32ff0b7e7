#include <fmt/format.h>

#include <map>

#include "checkpoint/saver.h"
#include "comm/background.h"
#include "comm/errors.h"
#include "comm/world_state.h"
#include "sherd/checkpoint.h"
#include "sherd/world.h"

namespace sherd {

struct SaveFuture::State {
  State(const Group& group, const std::string& path, const SaveOptions& options) : saver(group, path, options) {}

  detail::Saver saver;
  std::shared_ptr<detail::BackgroundTask> task;
  SaveResult result;
  std::atomic<bool> seen{false};  // somebody has been told how it ended
};

SaveResult SaveFuture::wait() {
  if (!state_) {
    detail::throw_state_error(
        ErrorText("SaveFuture::wait", "no save belongs to it").help("the future that save_async returned"));
  }
  state_->seen = true;
  state_->task->wait();
  return state_->result;
}

bool SaveFuture::ready() const { return state_ && state_->task->is_over(); }

CheckpointProgress SaveFuture::progress() const { return state_ ? state_->saver.progress() : CheckpointProgress(); }

namespace {

// What the ranks of one group keep between saves, each in its own thread: the last one, and the memory of its copy.
template <class State>
struct Slot {
  std::shared_ptr<State> last;
  at::Tensor memory;
};

}  // namespace

SaveFuture save_async(const StateDict& state, const std::string& path, const SaveOptions& options) {
  using State = SaveFuture::State;
  const World world = current_world();
  const Group group = options.group ? *options.group : world.group();
  thread_local std::map<std::pair<const void*, std::vector<int64_t>>, Slot<State>> slots;
  Slot<State>& slot = slots[{world.state().get(), group.ranks()}];
  std::string failure;
  if (slot.last) {
    try {
      slot.last->task->wait();
    } catch (const std::exception& error) {
      if (!slot.last->seen) failure = detail::message_of(error);
    }
    slot.last.reset();
  }
  auto now = std::make_shared<State>(group, path, options);
  const auto check = [&] {
    if (failure.empty()) return;
    detail::throw_error(ErrorText("save_async", "the save before this one failed, and nobody asked how it ended")
                            .fact("because", failure)
                            .help("call it again; future.wait() tells earlier"));
  };
  // A group of a backend that was given has no other to talk on: what the caller says on it meanwhile would mix with
  // the save. It is over before this returns, then, and needs no copy.
  const bool goes_beside = group.size() == 1 || group.has_background();
  now->saver.plan(state, {.check = check, .memory = goes_beside ? &slot.memory : nullptr});
  now->task = world.state()->saves().start(
      [now, beside = group.in_background("checkpoint")] { now->result = now->saver.write(beside); });
  if (!goes_beside) {
    try {
      now->task->wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the future tells, or the next call
    }
  }
  slot.last = now;
  SaveFuture future;
  future.state_ = std::move(now);
  return future;
}

}  // namespace sherd
