#pragma once
// The transport of ranks that are threads of one process: they read each other's tensors. CPU tensors, and tensors of
// one GPU.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/run_moves.h"
#include "comm/sync_backend.h"
#include "comm/thread_hub.h"

namespace sherd::detail {

class ThreadsBackend final : public SyncBackend, public TakesRuns {
 public:
  ThreadsBackend(std::shared_ptr<ThreadHub> hub, int rank) : SyncBackend(rank, hub->size()), hub_(std::move(hub)) {}
  const std::string getBackendName() const override { return "threads"; }
  void run_runs(const Call& call, const RunMove& move) override;

 protected:
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override { hub_->post(getRank(), to, tag, tensor); }
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;
  void stop_others(const std::string& cause) override { hub_->fail(hub_->world_rank(getRank()), cause); }

 private:
  void move(const Call& call);
  void take(const Call& call);
  void all_reduce(const Call& call);
  bool reduce_by_shares(const Call& call) const;
  void copy_block(const Call& call, size_t output, int from, size_t input) const;
  void copy_from_root(const Call& call) const;
  void share_out(const std::vector<at::Tensor>& given, const std::vector<std::vector<at::Tensor>>& places) const;
  bool gather_by_shares(const Call& call) const;
  bool gather_runs_by_shares(size_t bytes) const;
  ByteRuns runs_from(int rank, size_t block) const;
  std::vector<at::Tensor> inputs_of_all(size_t block) const;

  std::shared_ptr<ThreadHub> hub_;
};

}  // namespace sherd::detail
