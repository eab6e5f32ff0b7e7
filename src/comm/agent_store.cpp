#include "comm/agent_store.h"

#include "comm/rpc_wire.h"

namespace sherd::detail {
namespace {

constexpr const char* kAbandoned = "abandoned";

}  // namespace

AgentStore::AgentStore(const std::string& key, const std::shared_ptr<const Link>& link,
                       std::chrono::milliseconds timeout)
    : WatchedStore(key, link), size_(link->size) {
  timeout_ = timeout;
}

void AgentStore::abandon() {
  try {
    set(kAbandoned, std::vector<uint8_t>{1});
  } catch (const std::exception&) {  // the store is gone, and the others know it
  }
}

void AgentStore::look() {
  if (check({kAbandoned})) throw WireAbandoned("another rank cannot start");
  WatchedStore::look();
}

std::vector<uint8_t> AgentStore::get(const std::string& key) {
  return alone_ ? own_->get(key) : WatchedStore::get(key);
}

void AgentStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  alone_ ? own_->set(key, value) : WatchedStore::set(key, value);
}

int64_t AgentStore::add(const std::string& key, int64_t value) {
  return alone_ ? own_->add(key, value * size_) : WatchedStore::add(key, value);
}

void AgentStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  alone_ ? own_->wait(keys, timeout) : WatchedStore::wait(keys, timeout);
}

}  // namespace sherd::detail
