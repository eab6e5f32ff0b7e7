#pragma once
// Collective calls on a group. Every rank of the group makes the same calls in the same order.
//
// Tensors are contiguous, on one device, and alive until the Work is waited for. All dtypes: what a transport cannot
// send (bool, complex, 8-bit floats, ...) travels as bytes or as its real parts.
// Throws c10::ValueError before anything moves where this rank's own arguments are wrong, and c10::DistBackendError
// when a rank failed, died, came too late or called something else; the group is unusable after that.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/group.h"
#include "sherd/placement.h"

namespace sherd {

/// A collective under way. Dropping it without waiting leaves the result undefined.
class Work {
 public:
  Work() = default;
  explicit Work(std::function<void()> finish) : finish_(std::move(finish)) {}
  /// Returns when the result may be used: on the CPU when it is there, on a GPU when the current stream waits for it.
  void wait() {
    if (auto finish = std::exchange(finish_, nullptr)) finish();
  }

 private:
  std::function<void()> finish_;
};

/// out = the ranks' `in`, one block each in rank order; out.numel() == size * in.numel().
Work all_gather(const Group& group, const at::Tensor& out, const at::Tensor& in);

/// The same with blocks of different sizes: block i has `numels[i]` elements, in.numel() == numels[rank].
/// Costs sum(numels) - numels[rank] elements received: nothing is padded.
Work all_gather_uneven(const Group& group, const at::Tensor& out, const at::Tensor& in, c10::IntArrayRef numels);

/// Every rank's `inout` becomes the reduction of all. avg of integers is refused.
Work all_reduce(const Group& group, const at::Tensor& inout, ReduceOp op = ReduceOp::sum);

/// out = this rank's block of the reduction; `in` is one block per rank, block i of numels[i] elements (all equal to
/// out.numel() where `numels` is empty).
Work reduce_scatter(const Group& group, const at::Tensor& out, const at::Tensor& in, ReduceOp op = ReduceOp::sum,
                    c10::IntArrayRef numels = {});

/// Block i of `in` (in_numels[i] elements) goes to rank i; block i of `out` (out_numels[i]) comes from rank i.
/// Empty lists mean equal blocks.
Work all_to_all(const Group& group, const at::Tensor& out, const at::Tensor& in, c10::IntArrayRef out_numels = {},
                c10::IntArrayRef in_numels = {});

/// Every rank's `inout` becomes that of `root` (a place in the group).
Work broadcast(const Group& group, const at::Tensor& inout, int root);

/// out = block `rank` of root's `in`; other ranks pass an undefined `in`.
Work scatter(const Group& group, const at::Tensor& out, const at::Tensor& in, int root, c10::IntArrayRef numels = {});

/// Point to point. A send may return before the other side receives.
Work send(const Group& group, const at::Tensor& tensor, int to, int tag = 0);
Work receive(const Group& group, const at::Tensor& tensor, int from, int tag = 0);

/// Returns when every rank has called it.
void barrier(const Group& group);

/// Every rank's text, in rank order. For small things: names, metadata, error messages.
std::vector<std::string> all_gather_text(const Group& group, std::string_view text);

/// Runs `check` on every rank and then agrees: returns when it succeeded everywhere; throws the same c10::ValueError
/// on every rank, naming the ranks that failed and their messages, where it threw on any. Costs one small all_gather.
void agree(const Group& group, std::string_view operation, const std::function<void()>& check);

/// One collective as it was called on one rank.
struct CollectiveCall {
  std::string name;  // "all_gather"
  std::string group;
  std::string dtype;
  int64_t numel = 0;  // of this rank's input
  int64_t bytes = 0;  // that this rank receives from others
  bool operator==(const CollectiveCall&) const = default;
};

/// While it lives, keeps every collective that this thread calls through the functions above, on any group.
class CommRecorder {
 public:
  CommRecorder();
  ~CommRecorder();
  CommRecorder(const CommRecorder&) = delete;
  CommRecorder& operator=(const CommRecorder&) = delete;

  const std::vector<CollectiveCall>& calls() const { return calls_; }
  int64_t bytes() const;
  /// One line per kind of call: "all_gather f32 x3 12.0 KiB".
  std::string to_string() const;
  void add(CollectiveCall call) { calls_.push_back(std::move(call)); }

 private:
  std::vector<CollectiveCall> calls_;
  CommRecorder* outer_;
};

}  // namespace sherd
