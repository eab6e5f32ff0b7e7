#pragma once
// The transport over MPI-3: a communicator per group, nonblocking collectives. CPU tensors.

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mpi_process.h"
#include "comm/sync_backend.h"

namespace sherd::detail {

/// Calls are under way when they return. Sixteen-bit floats are reduced in 32 bits.
class MpiBackend final : public SyncBackend {
 public:
  /// `communicator` has this backend's ranks in their order. It is never freed: all its ranks would have to do so
  /// together, and MPI_Finalize does.
  /// Of `most` bytes or elements and less a call is one call of MPI, of more several.
  MpiBackend(MPI_Comm communicator, int rank, std::vector<int64_t> ranks, std::chrono::milliseconds timeout,
             int64_t most)
      : SyncBackend(rank, static_cast<int>(ranks.size())),
        communicator_(communicator),
        ranks_(std::move(ranks)),
        timeout_(timeout),
        most_(most) {}

  const std::string getBackendName() const override { return "mpi"; }
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  bool compares_calls() const override { return false; }

 protected:
  WorkPtr finish(const Call& call) override;
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override;
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;

 private:
  /// All tensors are contiguous.
  WorkPtr begin(const Call& call) const;
  WorkPtr start(const Call& call, const std::function<void(MpiCall&)>& start, std::function<void()> after = {}) const;
  WorkPtr move(const Call& call) const;
  WorkPtr all_gather_at_once(const Call& call) const;
  WorkPtr broadcast_from_root(const Call& call) const;
  WorkPtr reduce_whole(const Call& call) const;
  WorkPtr reduce_blocks(const Call& call) const;

  MPI_Comm communicator_;
  std::vector<int64_t> ranks_;  // the world's numbers of the members, for messages
  std::chrono::milliseconds timeout_;
  int64_t most_;
};

}  // namespace sherd::detail
