#include "comm/rpc.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include "comm/errors.h"
#include "comm/missing_ranks.h"
#include "comm/rank_list.h"
#include "comm/world_state.h"
#include "sherd/box.h"

namespace sherd::detail {
namespace {

[[noreturn]] void refuse_reply(const char* operation, const RemoteTensor::Where& where, const RpcReply& reply) {
  const int owner = where.owner;
  switch (reply.status) {
    case RpcReply::no_such_id:
      throw_state_error(
          ErrorText(operation, fmt::format("rank {} shares this tensor no more", owner))
              .fact("tensor", fmt::format("{} of what rank {} shared as {}", where.index, owner, where.id))
              .help(fmt::format("keep what share_tensors returned on rank {} for as long as others fetch", owner)));
    case RpcReply::no_such_index:
      throw_value_error(ErrorText(operation, "there is no such tensor")
                            .fact("index", std::to_string(where.index))
                            .fact(fmt::format("rank {}", owner), fmt::format("shares {}", reply.count))
                            .help("tensors are counted from 0"));
    case RpcReply::not_me:
      throw_comm_error(ErrorText(operation, fmt::format("what was meant for rank {} reached another rank", owner))
                           .fact("cause", "ranks give each other addresses that mean something else elsewhere")
                           .help("TP_SOCKET_IFNAME=eth0 names the network interface whose address a rank gives"));
    default:
      throw_comm_error(ErrorText(operation, fmt::format("rank {} cannot send the tensor", owner))
                           .fact(fmt::format("rank {}", owner), reply.text.empty() ? "sent something else" : reply.text)
                           .help(fmt::format("look at the output of rank {}", owner)));
  }
}

RpcMessage answer(const Shelf& shelf, int64_t me, const RpcMessage& message) {
  try {
    const RpcRequest request = parse_request(message);
    if (request.to != me) return to_message(RpcReply{.status = RpcReply::not_me});
    if (request.kind == RpcRequest::greet) return to_message(RpcReply{});
    return to_message(shelf.find(request.id, request.index));
  } catch (...) {
    return to_message(RpcReply{.status = RpcReply::failed, .text = message_of_current_exception()});
  }
}

}  // namespace

uint64_t Shelf::add(std::vector<at::Tensor> tensors) {
  static std::atomic<uint64_t> last = 0;
  const uint64_t id = ++last;
  const std::lock_guard lock(mutex_);
  tensors_.emplace(id, std::move(tensors));
  return id;
}

void Shelf::remove(uint64_t id) {
  std::vector<at::Tensor> removed;  // let go without the lock
  const std::lock_guard lock(mutex_);
  if (const auto at = tensors_.find(id); at != tensors_.end()) {
    removed = std::move(at->second);
    tensors_.erase(at);
  }
}

void Shelf::clear() {
  std::map<uint64_t, std::vector<at::Tensor>> removed;
  const std::lock_guard lock(mutex_);
  removed.swap(tensors_);
}

RpcReply Shelf::find(uint64_t id, uint64_t index) const {
  const std::lock_guard lock(mutex_);
  const auto at = tensors_.find(id);
  if (at == tensors_.end()) return {.status = RpcReply::no_such_id};
  if (index >= at->second.size()) return {.status = RpcReply::no_such_index, .count = at->second.size()};
  return {.tensor = at->second[index]};
}

void Rpc::start(const std::string& key, int threads) {
  {
    const std::lock_guard lock(wire_mutex_);
    wire_ = make_tensorpipe(
        {.link = link_, .key = key, .names = names_, .threads = threads, .timeout = timeout_},
        [shelf = shelf_, me = link_->rank](const RpcMessage& message) { return answer(*shelf, me, message); });
  }
  if (link_->size == 1) return;
  const int next = (link_->rank + 1) % link_->size;
  try {
    const RpcReply reply = reply_of("init_rpc", next, *send("init_rpc", {.to = next}, timeout_), timeout_);
    if (reply.status != RpcReply::done) refuse_reply("init_rpc", {.owner = next}, reply);
  } catch (const c10::DistBackendError& error) {
    throw_comm_error(ErrorText("init_rpc", fmt::format("rank {} cannot reach rank {}", link_->rank, next))
                         .fact("cause", message_of(error))
                         .help("TP_SOCKET_IFNAME=eth0 names the network interface whose address a rank gives"));
  }
}

void Rpc::finish() {
  const std::shared_lock lock(wire_mutex_);
  leaving_ = true;
  if (wire_) wire_->finish();
}

void Rpc::settle() {
  const std::shared_lock lock(wire_mutex_);
  if (wire_) wire_->settle();
}

void Rpc::stop() {
  leaving_ = true;
  {
    const std::lock_guard lock(wire_mutex_);
    wire_.reset();
  }
  shelf_->clear();
}

bool Rpc::running() const { return !leaving_; }

void Rpc::refuse_ended(const char* operation) const {
  throw_state_error(ErrorText(operation, "RPC has ended on this rank")
                        .fact("rank", std::to_string(link_->rank))
                        .help("fetch before sherd::shutdown_rpc(world)"));
}

std::shared_ptr<const Published> Rpc::publish(std::vector<at::Tensor> tensors) {
  return std::make_shared<const Published>(shelf_, std::move(tensors));
}

std::shared_ptr<PendingReply> Rpc::send(const char* operation, const RpcRequest& request,
                                        std::chrono::milliseconds timeout) {
  try {
    const std::shared_lock lock(wire_mutex_);
    if (leaving_ || !wire_) refuse_ended(operation);
    return wire_->ask(static_cast<int>(request.to), to_message(request), timeout);
  } catch (const NoAnswer& none) {
    throw_comm_error(link_->explain_no_answer(operation, request.to, none.what(), std::nullopt));
  }
}

RpcReply Rpc::reply_of(const char* operation, int64_t asked, PendingReply& pending, std::chrono::milliseconds timeout) {
  try {
    return parse_reply(pending.wait());
  } catch (const std::invalid_argument& garbage) {
    return {.status = RpcReply::failed, .text = fmt::format("sent what this rank cannot read: {}", garbage.what())};
  } catch (const NoAnswer& none) {
    if (leaving_) refuse_ended(operation);
    const auto waited = none.late ? std::optional(timeout) : std::nullopt;
    throw_comm_error(link_->explain_no_answer(operation, asked, none.what(), waited));
  }
}

PendingFetch Rpc::fetch_async(const char* operation, const RemoteTensor::Where& where,
                              std::chrono::milliseconds timeout) {
  if (where.owner < 0 || where.owner >= link_->size) {
    throw_value_error(ErrorText(operation, "there is no such rank")
                          .fact("rank", std::to_string(where.owner))
                          .fact("world", rank_count(link_->size))
                          .help(fmt::format("ranks go from 0 to {}", link_->size - 1)));
  }
  const auto patience = timeout.count() > 0 ? timeout : timeout_;
  const auto tensor_in = [operation, where](const RpcReply& reply) {
    if (reply.status != RpcReply::done || !reply.tensor) refuse_reply(operation, where, reply);
    return *reply.tensor;
  };
  if (where.owner == link_->rank) {
    if (leaving_) refuse_ended(operation);
    return PendingFetch([tensor_in, reply = shelf_->find(where.id, where.index)] {
      const at::Tensor own = tensor_in(reply);
      const at::Tensor values = plain_values(own);
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      return values.storage().is_alias_of(own.storage()) ? values.clone() : values;
    });
  }
  const RpcRequest request{.kind = RpcRequest::fetch, .to = where.owner, .id = where.id, .index = where.index};
  return PendingFetch(
      [self = shared_from_this(), operation, where, patience, tensor_in, pending = send(operation, request, patience)] {
        return tensor_in(self->reply_of(operation, where.owner, *pending, patience));
      });
}

std::shared_ptr<Rpc> rpc_of(const World& world, const char* operation) {
  if (auto rpc = world.state()->rpc()) return rpc;
  throw_state_error(ErrorText(operation, "the world has no RPC")
                        .fact("rank", std::to_string(world.rank()))
                        .help("sherd::init_rpc(world) on every rank, first"));
}

}  // namespace sherd::detail
