#pragma once
// Transports that send nothing: `single`, a group of one, and `fake`, one rank of a pretended many.

#include <string>

#include "comm/sync_backend.h"

namespace sherd::detail {

/// With size 1 every collective is what it should be. With more, the other ranks are taken to hold this rank's data
/// where data must come from somewhere, and reductions leave this rank's part as it is.
class LocalBackend final : public SyncBackend {
 public:
  LocalBackend(int rank, int size) : SyncBackend(rank, size) {}
  const std::string getBackendName() const override { return getSize() == 1 ? "single" : "fake"; }

 protected:
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override;
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;

 private:
  std::vector<std::pair<int, at::Tensor>> sent_;  // tag and copy, of messages to itself
};

}  // namespace sherd::detail
