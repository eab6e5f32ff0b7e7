#pragma once
// Sharing tensors with other ranks and fetching theirs: what RemoteTensor and share_tensors are made of.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "comm/link.h"
#include "comm/rpc_message.h"
#include "comm/rpc_wire.h"
#include "sherd/rpc.h"
#include "sherd/world.h"

namespace sherd::detail {

/// What this rank shares, by id. All methods may be called from any thread.
class Shelf {
 public:
  /// The id is new in this process: a handle of earlier days never finds something else.
  uint64_t add(std::vector<at::Tensor> tensors);
  void remove(uint64_t id);
  void clear();
  /// The tensor itself, or why there is none.
  RpcReply find(uint64_t id, uint64_t index) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<at::Tensor>> tensors_;
};

/// Shares tensors for as long as it lives.
class Published {
 public:
  Published(std::shared_ptr<Shelf> shelf, std::vector<at::Tensor> tensors)
      : shelf_(std::move(shelf)), id_(shelf_->add(std::move(tensors))) {}
  ~Published() { shelf_->remove(id_); }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  uint64_t id() const { return id_; }

 private:
  std::shared_ptr<Shelf> shelf_;
  uint64_t id_;
};

/// A tensor on its way.
class PendingFetch {
 public:
  explicit PendingFetch(std::function<at::Tensor()> finish) : finish_(std::move(finish)) {}
  /// The tensor, once it is there; once. Throws as RemoteTensor::to_here does.
  at::Tensor wait() { return std::exchange(finish_, nullptr)(); }

 private:
  std::function<at::Tensor()> finish_;
};

/// One rank's part in RPC, from init_rpc to its end. All methods may be called from any thread.
class Rpc : public std::enable_shared_from_this<Rpc> {
 public:
  /// `timeout`: of a fetch that names none.
  Rpc(std::shared_ptr<const Link> link, std::vector<std::string> names, std::chrono::milliseconds timeout)
      : link_(std::move(link)), names_(std::move(names)), timeout_(timeout) {}
  ~Rpc() { stop(); }
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;

  /// Connects the ranks, which all call it; returns when the next rank, in a ring, has answered. Throws WireAbandoned,
  /// or what went wrong on this rank.
  void start(const std::string& key, int threads);
  /// Refuses new fetches and returns when those of this rank are over.
  void finish();
  /// After finish() on every rank: returns when this rank's answers have left it.
  void settle();
  /// Ends everything at once. Nothing happens the second time.
  void stop();
  bool running() const;

  const std::vector<std::string>& names() const { return names_; }

  /// Tensors for others to fetch.
  std::shared_ptr<const Published> publish(std::vector<at::Tensor> tensors);
  /// `operation` starts the text of an error. `timeout`: zero for the usual one.
  PendingFetch fetch_async(const char* operation, const RemoteTensor::Where& where,
                           std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
  at::Tensor fetch(const char* operation, const RemoteTensor::Where& where,
                   std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    return fetch_async(operation, where, timeout).wait();
  }

 private:
  RpcReply reply_of(const char* operation, int64_t asked, PendingReply& pending, std::chrono::milliseconds timeout);
  std::shared_ptr<PendingReply> send(const char* operation, const RpcRequest& request,
                                     std::chrono::milliseconds timeout);
  [[noreturn]] void refuse_ended(const char* operation) const;

  std::shared_ptr<const Link> link_;
  std::vector<std::string> names_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
  std::atomic<bool> leaving_ = false;
  mutable std::shared_mutex wire_mutex_;  // held alone to make and to end the wire
  std::unique_ptr<RpcWire> wire_;
};

/// The world's RPC. Throws c10::Error where there is none.
std::shared_ptr<Rpc> rpc_of(const World& world, const char* operation);

}  // namespace sherd::detail
