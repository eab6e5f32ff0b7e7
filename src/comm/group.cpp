#include "sherd/group.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <set>

#include "comm/arguments.h"
#include "comm/errors.h"
#include "comm/group_state.h"
#include "comm/local.h"
#include "comm/rank_list.h"
#include "comm/recording.h"
#include "comm/settings.h"
#include "comm/threads.h"
#include "comm/transports.h"
#include "comm/watched_store.h"
#include "sherd/box.h"

namespace sherd {
namespace detail {

GroupState::GroupState(std::shared_ptr<const Link> link, std::vector<int64_t> ranks, BackendConfig config,
                       std::string lane)
    : link_(std::move(link)), ranks_(std::move(ranks)), config_(std::move(config)), lane_(std::move(lane)) {
  const auto me = std::find(ranks_.begin(), ranks_.end(), link_->rank);
  if (me != ranks_.end()) rank_ = static_cast<int>(me - ranks_.begin());
  name_ = (ranks_.size() == 1 ? "rank " : "ranks ") + rank_list(ranks_);
}

bool GroupState::serves(c10::DeviceType device) const {
  return size() == 1 || has_transport(device) || !config_.backend_for(device).empty();
}

void GroupState::check_open(const char* operation) const {
  if (closed_ == nullptr) return;
  throw_comm_error(ErrorText(operation, closed_).fact("group", name_).help("start the program again"));
}

c10::intrusive_ptr<c10d::Backend> GroupState::transport(c10::DeviceType device, const char* operation) {
  {
    const std::lock_guard lock(mutex_);
    check_open(operation);
    if (const auto made = transports_.find(device); made != transports_.end()) return made->second;
  }
  if (!serves(device)) {
    throw_comm_error(ErrorText(operation, "the group has no backend for this kind of device")
                         .fact("device", c10::DeviceTypeName(device, true))
                         .fact("group", name_)
                         .fact("backends", config_.text().empty() ? "those it was made from" : config_.text())
                         .help("WorldOptions{.backend = \"cpu:gloo,cuda:nccl\"}"));
  }
  // Waits for other ranks: without the lock. This rank may have left meanwhile.
  auto backend = make(device, size() == 1 ? "fake" : config_.backend_for(device), operation);
  const std::lock_guard lock(mutex_);
  check_open(operation);
  return transports_.emplace(device, std::move(backend)).first->second;
}

c10::intrusive_ptr<c10d::Backend> GroupState::make(c10::DeviceType device, const std::string& backend,
                                                   const char* operation) const {
  if (backend == "fake") return c10::make_intrusive<LocalBackend>(rank_, size());
  // Members agree on this name without talking: it follows from who they are and what they use.
  const std::string key =
      "sherd/group/" + lane_ + config_.text() + "/" + c10::DeviceTypeName(device, true) + "/" + rank_list(ranks_);
  if (backend == "threads") {
    if (!link_->hubs) {
      throw_comm_error(ErrorText(operation, "the ranks of this world are no threads of one process")
                           .fact("backend", "threads")
                           .help("WorldOptions{.backend = \"gloo\"}, or start the ranks with sherd::spawn"));
    }
    return c10::make_intrusive<ThreadsBackend>(link_->hubs->hub(key, ranks_), rank_);
  }
  if (backend == "mpi" && link_->hubs) {
    throw_comm_error(ErrorText(operation, "the ranks of this world are threads of one process")
                         .fact("backend", config_.text())
                         .help("mpirun -n 4 ./program, with sherd::init({.backend = \"mpi\"})"));
  }
  const Meeting meeting{.store = c10::make_intrusive<WatchedStore>(key, link_),
                        .rank = rank_,
                        .size = size(),
                        .timeout = link_->timeout,
                        .ranks = ranks_,
                        .name = key};
  if (backend == "mpi") return make_mpi(meeting);
  if (backend == "nccl") return make_nccl(meeting);
  if (backend == "gloo" || device != c10::DeviceType::CPU) return make_gloo(meeting);
  const Hosts hosts = hosts_of(meeting);
  if (hosts.size() == 1) return make_shm(meeting);
  if (backend == "auto") {
    return hosts.size() == ranks_.size() ? make_gloo(meeting) : make_hierarchical(meeting, hosts);
  }
  throw_comm_error(ErrorText(operation, "the ranks of the group are not on one host")
                       .fact("group", name_)
                       .fact("backend", config_.text())
                       .help("WorldOptions{.backend = \"gloo\"}, or leave it empty"));
}

c10::intrusive_ptr<c10d::Backend> GroupState::backend(c10::DeviceType device) {
  try {
    auto inner = transport(device, "backend");
    if (!link_->check || size() == 1) return inner;
    const std::lock_guard lock(mutex_);
    auto& checked = checked_[device];
    if (!checked) checked = c10::make_intrusive<RecordingBackend>(std::move(inner), ranks_, nullptr, true);
    return checked;
  } catch (const std::exception&) {
    rethrow("backend");
  }
}

void GroupState::set_backend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend) {
  const std::lock_guard lock(mutex_);
  transports_[device] = std::move(backend);
}

const std::string* lasting_label(const std::string& text) {
  static std::mutex mutex;
  static auto* labels = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return &*labels->insert(text).first;
}

std::shared_ptr<GroupState> GroupState::in_background(const std::shared_ptr<GroupState>& group,
                                                      const std::string& lane) {
  if (!group->has_background()) return group;
  const std::lock_guard lock(group->background_mutex_);
  auto& beside = group->in_background_[lane];
  if (!beside) {
    beside = std::make_shared<GroupState>(group->link_, group->ranks_, group->config_, lane + "/" + group->lane_);
    const std::lock_guard state_lock(group->mutex_);
    beside->closed_ = group->closed_;
  }
  beside->set_axis_label(&group->axis_label());
  return beside;
}

void GroupState::send_to_self(const at::Tensor& tensor, int tag) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  Mailbox& box = own_mail_[tag];
  box.waiting.emplace(box.sent++, tensor.clone());
}

void GroupState::receive_from_self(const at::Tensor& tensor, int tag, uint64_t turn) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto message = own_mail_[tag].waiting.extract(turn);
  if (message.empty()) {
    throw_value_error(ErrorText("receive", "this rank has sent itself nothing")
                          .fact("tag", std::to_string(tag))
                          .help("send(group, tensor, group.rank(), tag) first"));
  }
  check_fits(message.mapped(), tensor);
  copy_elements(tensor, message.mapped());
}

void GroupState::close(const char* reason, bool in_good_order) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ == nullptr) closed_ = reason;
  }
  {
    const std::lock_guard lock(background_mutex_);
    for (auto& [lane, beside] : in_background_) beside->close(reason, in_good_order);
  }
  for (auto& [device, transport] : transports()) {
    if (dynamic_cast<SyncBackend*>(transport.get()) == nullptr) continue;
    in_good_order ? transport->shutdown() : transport->abort();
  }
  if (under_way_.use_count() > 1) return;  // the backend's destructor would wait for them
  Backends last, last_checked;             // which may wait: without the lock
  const std::lock_guard lock(mutex_);
  last.swap(transports_);
  last_checked.swap(checked_);
}

void GroupState::close_lane(const std::string& lane, const char* reason) {
  const std::lock_guard lock(background_mutex_);
  const auto beside = in_background_.find(lane);
  if (beside != in_background_.end()) beside->second->close(reason);
}

GroupState::Backends GroupState::transports() const {
  const std::lock_guard lock(mutex_);
  return transports_;
}

void GroupState::end() {
  {
    const std::lock_guard lock(background_mutex_);
    for (auto& [lane, beside] : in_background_) beside->end();
  }
  for (auto& [device, transport] : transports()) {
    if (dynamic_cast<SyncBackend*>(transport.get()) != nullptr) transport->shutdown();
  }
}

void GroupState::rethrow(const char* operation) {
  const std::string cause = message_of_current_exception();
  if (is_explained(cause)) throw_comm_error(cause);
  close("the group broke in an earlier call");  // the others must not wait for this rank
  throw_comm_error(link_->explain_broken_call(operation, ranks_, name_, cause));
}

}  // namespace detail

Group Group::from_backend(c10::intrusive_ptr<c10d::Backend> backend, std::vector<int64_t> ranks,
                          c10::DeviceType device) {
  detail::check_members("from_backend", ranks, backend->getSize());
  auto link = std::make_shared<detail::Link>();
  link->rank = static_cast<int>(ranks.at(static_cast<size_t>(backend->getRank())));
  link->size = static_cast<int>(*std::max_element(ranks.begin(), ranks.end())) + 1;
  link->timeout = detail::settings().timeout;
  auto state = std::make_shared<detail::GroupState>(std::move(link), std::move(ranks), detail::BackendConfig());
  state->set_backend(device, std::move(backend));
  return Group(std::move(state));
}

bool Group::has_background() const { return state_->has_background(); }

Group Group::in_background(const std::string& lane) const {
  return Group(detail::GroupState::in_background(state_, lane));
}

int Group::rank() const { return state_->rank(); }
int Group::size() const { return state_->size(); }
const std::vector<int64_t>& Group::ranks() const { return state_->ranks(); }
const std::string& Group::name() const { return state_->name(); }
c10::intrusive_ptr<c10d::Backend> Group::backend(c10::DeviceType device) const { return state_->backend(device); }

}  // namespace sherd
