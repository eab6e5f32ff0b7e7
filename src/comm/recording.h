#pragma once
// A transport around another: it keeps the list of calls, and can compare what the ranks call before each of them.
// sherd's own collectives are noted before they are composed of the transport's, with their true names and dtypes.

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "comm/call.h"

namespace sherd::detail {

/// Exchanges a few numbers of what the ranks are about to call in a small all_gather, and throws the same
/// c10::DistBackendError on each of them where their calls do not fit together. `ranks` are the world's ranks of the
/// members, for the text.
void compare_calls(c10d::Backend& backend, const std::vector<int64_t>& ranks, const Call& call);

using CallLog = std::vector<std::string>;  // describe(call), in order

class RecordingBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// `log` may be null. With `check`, compare_calls comes before each collective.
  RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::vector<int64_t> ranks, std::shared_ptr<CallLog> log,
                   bool check);

  /// The transport inside. A call made on it is not noted by itself.
  c10d::Backend& inner() { return *inner_; }
  /// Writes down a call that is about to be made on inner(), and compares it where that is wanted.
  void note(const Call& call);

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                        std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::vector<int64_t> ranks_;
  std::shared_ptr<CallLog> log_;
  bool check_;
};

}  // namespace sherd::detail
