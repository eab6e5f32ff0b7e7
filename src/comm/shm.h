#pragma once
// The transport of processes of one host: they meet in shared memory. CPU tensors.

#include <functional>
#include <memory>
#include <string>

#include "comm/run_moves.h"
#include "comm/shm_hub.h"
#include "comm/shm_mail.h"
#include "comm/sync_backend.h"

namespace sherd::detail {

/// Data goes through the areas of the hub, in rounds: each rank stages a piece, all meet, each takes what it needs. The
/// numbers of a reduction are combined in the order of the ranks, by one rank, so that all get the same bits.
class ShmBackend final : public SyncBackend, public TakesRuns {
 public:
  explicit ShmBackend(std::shared_ptr<ShmHub> hub);
  /// Waits for others to take the messages they have not taken, unless the group broke.
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  void abort() override;
  void shutdown() override;
  void run_runs(const Call& call, const RunMove& move) override;

 protected:
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override;
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;
  void stop_others(const std::string& cause) override { hub_->leave(cause); }

 private:
  template <class Rounds, class Stage, class Take>
  void in_rounds(const Call& call, Rounds rounds, Stage stage, Take take);
  void move(const Call& call);
  void run_all_gather(const Call& call, const RunMove* move = nullptr);
  void run_broadcast(const Call& call);
  void run_exchange(const Call& call, const RunMove* move = nullptr);
  void run_reduce_scatter(const Call& call);
  void run_all_reduce(const Call& call);
  void run_all_reduce_small(const Call& call);

  std::shared_ptr<ShmHub> hub_;
  std::shared_ptr<ShmMail> mail_;
  bool aborted_ = false;
};

}  // namespace sherd::detail
