#pragma once
// The store in which the members of a group find each other. A wait for a member that has failed ends at once, not with
// the timeout: backends that are just being made do not look for failures themselves.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/link.h"

namespace sherd::detail {

class WatchedStore : public c10d::PrefixStore {
 public:
  WatchedStore(const std::string& prefix, std::shared_ptr<const Link> link)
      : c10d::PrefixStore(prefix, link->store), link_(std::move(link)) {}

  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  /// Throws what look() throws.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 protected:
  /// Called now and then while somebody waits. Throws where that has become pointless: std::runtime_error where a rank
  /// of the world has failed meanwhile.
  virtual void look();

 private:
  std::shared_ptr<const Link> link_;
};

}  // namespace sherd::detail
