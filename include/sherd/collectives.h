#pragma once
// Collective calls on a group. Every rank of the group makes the same calls in the same order.
//
// Tensors are dense, contiguous, on one device, and alive until the Work is waited for. `in` and `out` do not overlap,
// except that `in` of all_gather may be this rank's block of `out`, and `out` of reduce_scatter its block of `in`.
// All dtypes can be moved: what a transport does not know (bool, complex, 8-bit floats, ...) travels as bytes.
//
// Throws c10::ValueError before anything moves where this rank's own arguments are wrong, and c10::DistBackendError
// when a rank failed, died, came too late or called something else; the group is unusable after that. Rank threads
// always compare what they call, the other transports where WorldOptions::check is set.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// Every rank's `inout` becomes the reduction of all; the same bits on every rank. Complex numbers are reduced by
/// sum, avg and product alone, integers not by avg, 8-bit floats and u16, u32, u64 not at all; for bool, sum is "any"
/// and product is "all".
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

/// Point to point. Messages between two ranks with one tag (0 to 2^30 - 1) arrive in the order they were sent; NCCL
/// looks at the order alone. A send may or may not be over before the other side receives: to exchange, start both and
/// then wait for both. A rank may send to itself, before it waits for the message.
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
  std::string dtype;      // empty for a barrier
  int64_t numel = 0;      // of this rank's input
  int64_t bytes = 0;      // that this rank receives from others
  std::string step = {};  // of the plan that it carries out, as plans are printed: "exchange@tp"; else empty
  bool operator==(const CollectiveCall&) const = default;
};

/// While it lives, keeps every collective that this thread calls through the functions above, on any group. Recorders
/// nest: an outer one sees the calls too.
class CommRecorder {
 public:
  CommRecorder();
  ~CommRecorder();
  CommRecorder(const CommRecorder&) = delete;
  CommRecorder& operator=(const CommRecorder&) = delete;

  const std::vector<CollectiveCall>& calls() const { return calls_; }
  int64_t bytes() const;
  /// One line per kind of call: "all_gather f32 on ranks 0-3 x3 12.0 KiB"; and per step of the plans by which tensors
  /// were moved, in the words of redistribution_text and `sherd explain`: "exchange@tp f32 x1 6.0 KiB".
  std::string to_string() const;
  void add(CollectiveCall call) {
    if (outer_ != nullptr) outer_->add(call);
    calls_.push_back(std::move(call));
  }

 private:
  std::vector<CollectiveCall> calls_;
  CommRecorder* outer_;
};

}  // namespace sherd
