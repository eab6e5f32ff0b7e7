#pragma once
// The store that an RPC agent sees: the world's while the agents find each other, and this rank's alone when they part.

#include <atomic>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/watched_store.h"

namespace sherd::detail {

class AgentStore final : public WatchedStore {
 public:
  AgentStore(const std::string& key, const std::shared_ptr<const Link>& link, std::chrono::milliseconds timeout);

  /// Ends the waiting of all ranks with WireAbandoned: this one cannot start.
  void abandon();
  /// From now on this rank speaks for all: what it adds counts once for each of them, and nobody else sees it. The
  /// agent's own way to part counts the meetings of a process, and ranks that are threads share that number; so they
  /// part before, through a group.
  void part() { alone_ = true; }

  std::vector<uint8_t> get(const std::string& key) override;
  using WatchedStore::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  int64_t add(const std::string& key, int64_t value) override;
  using WatchedStore::wait;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override { return timeout_; }

 protected:
  void look() override;

 private:
  int size_;
  std::atomic<bool> alone_ = false;
  c10::intrusive_ptr<c10d::HashStore> own_ = c10::make_intrusive<c10d::HashStore>();
};

}  // namespace sherd::detail
