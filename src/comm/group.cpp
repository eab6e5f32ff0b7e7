#include "sherd/group.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/local.h"
#include "comm/rank_list.h"
#include "comm/recording.h"
#include "comm/settings.h"
#include "comm/threads.h"
#include "comm/transports.h"

namespace sherd {
namespace detail {

GroupState::GroupState(std::shared_ptr<const Link> link, std::vector<int64_t> ranks, BackendConfig config)
    : link_(std::move(link)), ranks_(std::move(ranks)), config_(std::move(config)) {
  const auto me = std::find(ranks_.begin(), ranks_.end(), link_->rank);
  if (me != ranks_.end()) rank_ = static_cast<int>(me - ranks_.begin());
  name_ = (ranks_.size() == 1 ? "rank " : "ranks ") + rank_list(ranks_);
}

c10::intrusive_ptr<c10d::Backend> GroupState::backend(c10::DeviceType device) {
  if (closed_) {
    throw_comm_error(ErrorText("group", "this rank left the group when it failed")
                         .fact("group", name_)
                         .help("start the program again"));
  }
  if (const auto made = backends_.find(device); made != backends_.end()) return made->second;
  const std::string name = size() == 1 ? "fake" : config_.backend_for(device);
  if (name.empty()) {
    throw_comm_error(ErrorText("group", "no backend for this kind of device")
                         .fact("device", c10::DeviceTypeName(device, true))
                         .fact("backends", config_.text())
                         .help("WorldOptions{.backend = \"cpu:gloo,cuda:nccl\"}"));
  }
  // Gloo and threads serve every device through one backend; it is shared under each name it is asked by.
  auto backend = make(device, name);
  if (link_->check && size() > 1 && name != "fake") {
    backend = c10::make_intrusive<RecordingBackend>(std::move(backend), ranks_, nullptr, true);
  }
  backends_.emplace(device, backend);
  return backend;
}

c10::intrusive_ptr<c10d::Backend> GroupState::make(c10::DeviceType device, const std::string& backend) const {
  // Members agree on this name without talking: it follows from who they are and what they use.
  const std::string key = "sherd/group/" + backend + "/" + c10::DeviceTypeName(device, true) + "/" + rank_list(ranks_);
  if (backend == "fake") return c10::make_intrusive<LocalBackend>(rank_, size());
  if (backend == "threads") {
    if (!link_->hubs) {
      throw_comm_error(ErrorText("group", "the ranks of this world are processes, not threads")
                           .fact("backend", "threads")
                           .help("use \"gloo\", or start the ranks with sherd::spawn"));
    }
    return c10::make_intrusive<ThreadsBackend>(link_->hubs->hub(key, ranks_), rank_);
  }
  try {
    const Meeting meeting{.store = c10::make_intrusive<c10d::PrefixStore>(key, link_->store),
                          .rank = rank_,
                          .size = size(),
                          .timeout = link_->timeout};
    return backend == "nccl" ? make_nccl(meeting) : make_gloo(meeting);
  } catch (const std::exception&) {
    rethrow("group");
  }
}

void GroupState::set_backend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend) {
  backends_[device] = std::move(backend);
}

void GroupState::close() {
  closed_ = true;
  backends_.clear();
}

void GroupState::rethrow(const char* operation) const {
  const std::string cause = message_of_current_exception();
  if (link_->hubs == nullptr && link_->store == nullptr) throw_comm_error(ErrorText(operation, cause));
  const std::string prefix = std::string(operation) + ": ";
  if (cause.starts_with(prefix) && cause.find("\n  help: ") != std::string::npos) throw_comm_error(cause);
  throw_comm_error(link_->explain_broken_call(operation, ranks_, name_, cause));
}

}  // namespace detail

Group Group::from_backend(c10::intrusive_ptr<c10d::Backend> backend, std::vector<int64_t> ranks,
                          c10::DeviceType device) {
  if (static_cast<int>(ranks.size()) != backend->getSize()) {
    detail::throw_value_error(ErrorText("from_backend", "one rank for each member is needed")
                                  .fact("ranks", std::to_string(ranks.size()))
                                  .fact("backend", std::to_string(backend->getSize()) + " members")
                                  .help("give the world's rank of each member, in the backend's order"));
  }
  auto link = std::make_shared<detail::Link>();
  link->rank = static_cast<int>(ranks.at(static_cast<size_t>(backend->getRank())));
  link->size = static_cast<int>(*std::max_element(ranks.begin(), ranks.end())) + 1;
  link->timeout = detail::settings().timeout;
  auto state = std::make_shared<detail::GroupState>(std::move(link), std::move(ranks), detail::BackendConfig());
  state->set_backend(device, std::move(backend));
  return Group(std::move(state));
}

int Group::rank() const { return state_->rank(); }
int Group::size() const { return state_->size(); }
const std::vector<int64_t>& Group::ranks() const { return state_->ranks(); }
const std::string& Group::name() const { return state_->name(); }
c10::intrusive_ptr<c10d::Backend> Group::backend(c10::DeviceType device) const { return state_->backend(device); }

}  // namespace sherd
