#pragma once
// The c10d::Backend under our own transports: it turns c10d's many entry points into Calls, and a transport runs them.

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/call.h"
#include "comm/reduce_tensors.h"

namespace sherd::detail {

/// Unless a transport says otherwise, calls complete before they return, but a receive completes when it is waited for.
/// Throws c10::ValueError for arguments that cannot be right on this rank alone.
class SyncBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  SyncBackend(int rank, int size) : c10d::Backend(rank, size) {}

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
  // Several at once, as torch's functional collectives ask: one after the other.
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  /// Whether it finds out by itself that ranks call different things.
  virtual bool compares_calls() const { return true; }

 protected:
  /// Runs a collective to its end; a transport that can have calls under way starts it instead.
  virtual WorkPtr finish(const Call& call);
  /// Runs a collective to its end.
  virtual void run(const Call& call) = 0;
  virtual void run_send(const at::Tensor& tensor, int to, int tag) = 0;
  /// Takes its turn among the receives from `from` with `tag`, and returns what waits for the message.
  virtual std::function<void()> start_receive(const at::Tensor& tensor, int from, int tag) = 0;

  /// Runs a part of a call in which others wait for this rank: where it fails here, by want of memory say, they stop
  /// too.
  void guarded(const Call& call, const std::function<void()>& f);
  /// Ends what others wait for, since this rank cannot go on. Of transports that run calls guarded.
  virtual void stop_others(const std::string& /*cause*/) {}
};

/// Copies all elements, whatever the two shapes. Nothing where there are none or the two are one memory.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

/// Throws c10::DistBackendError where a message has another dtype or size than the tensor it is received into.
void check_fits(const at::Tensor& message, const at::Tensor& tensor);

/// Throws c10::ValueError for a tensor on another device, where data passes through the memory of processes.
void check_on_cpu(const Call& call);

/// Calls f with this call, or, where some of its tensors are not contiguous, with copies that are; what f leaves in the
/// outputs is then copied back.
void with_contiguous(const Call& call, const std::function<void(const Call&)>& f);

/// True where a reduction is carried out in 32 bits and rounded once: sums, averages and products of 16-bit floats.
bool reduced_in_32_bits(c10::ScalarType dtype, ReduceOp op);

ReduceOp from_c10d(const c10d::ReduceOp& op);
c10d::ReduceOp to_c10d(ReduceOp op);

}  // namespace sherd::detail
