#pragma once
// The transport of ranks that are threads of one process: they read each other's tensors. CPU tensors, and tensors of
// one GPU.

#include <memory>
#include <string>

#include "comm/sync_backend.h"
#include "comm/thread_hub.h"

namespace sherd::detail {

class ThreadsBackend final : public SyncBackend {
 public:
  ThreadsBackend(std::shared_ptr<ThreadHub> hub, int rank) : SyncBackend(rank, hub->size()), hub_(std::move(hub)) {}
  const std::string getBackendName() const override { return "threads"; }

 protected:
  void run(const Call& call) override;
  void run_send(const at::Tensor& tensor, int to, int tag) override { hub_->post(getRank(), to, tag, tensor); }
  std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) override;

 private:
  void move(const Call& call);
  void take(const Call& call);
  void all_reduce(const Call& call);
  void reduce_in_chunks(const Call& call, const std::vector<at::Tensor>& parts);
  void copy_block(const Call& call, size_t output, int from, size_t input) const;
  void copy_from_root(const Call& call) const;
  std::vector<at::Tensor> inputs_of_all(size_t block) const;

  std::shared_ptr<ThreadHub> hub_;
};

}  // namespace sherd::detail
