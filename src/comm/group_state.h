#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backend_config.h"
#include "comm/link.h"

namespace sherd::detail {

/// What a Group points at: its members, and the backends made for it so far.
class GroupState {
 public:
  GroupState(std::shared_ptr<const Link> link, std::vector<int64_t> ranks, BackendConfig config);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  const Link& link() const { return *link_; }

  c10::intrusive_ptr<c10d::Backend> backend(c10::DeviceType device);
  void set_backend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend);

  /// Lets go of the backends: what the other ranks wait for on them ends with an error.
  void close();

  /// Throws the c10::DistBackendError that says what became of `operation`. Called in a catch block.
  [[noreturn]] void rethrow(const char* operation) const;

 private:
  c10::intrusive_ptr<c10d::Backend> make(c10::DeviceType device, const std::string& backend) const;

  std::shared_ptr<const Link> link_;
  std::vector<int64_t> ranks_;
  int rank_ = -1;
  BackendConfig config_;
  std::string name_;
  std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>> backends_;
  bool closed_ = false;
};

}  // namespace sherd::detail
