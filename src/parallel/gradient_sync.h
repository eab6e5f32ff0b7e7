#pragma once
// Gradients of parameters on data axes: left Partial while they are accumulated, reduced together in buckets.
//
// A hook before accumulation brings a gradient to its parameter's placements but for the data axes, where a Partial
// stays as it is; a hook after it counts. A bucket whose gradients are all there is moved in the background; when
// backward ends, what is left is moved too, and every gradient takes its place.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sherd/redistribute.h"

namespace sherd::detail {

class GradientSync : public std::enable_shared_from_this<GradientSync> {
 public:
  /// `data_axes`: bit a says that axis a of a parameter's mesh is a data axis.
  struct Member {
    at::Tensor parameter;
    uint64_t data_axes = 0;
  };
  explicit GradientSync(std::optional<c10::ScalarType> reduce_dtype) { options_.reduce_dtype = reduce_dtype; }

  /// Parameters whose gradients are reduced together. They live on one mesh.
  void add_bucket(const std::vector<Member>& members);

  void pause() { ++paused_; }
  void resume() { --paused_; }

  /// Called when a backward pass has ended.
  void on_end(std::function<void()> act) { ends_.push_back(std::move(act)); }

 private:
  struct Slot {
    c10::weak_intrusive_ptr<c10::TensorImpl> parameter;  // the parameter's hooks hold this object
    uint64_t data_axes = 0;
    size_t bucket = 0;
    at::Tensor settled;  // a reduced gradient of earlier passes, to which this one's is added
    bool arrived = false;
  };
  struct Bucket {
    std::vector<size_t> slots;
    size_t arrived = 0;
    std::vector<size_t> moving;  // slots whose gradients are under way
    std::optional<PendingTensors> pending;
  };
  struct Arrival;
  struct Pass;

  at::Tensor before(size_t slot, const at::Tensor& grad);
  void after(size_t slot);
  void start(Bucket& bucket);
  void finish(Bucket& bucket);
  void settle(Slot& slot, const at::Tensor& reduced);
  void end();
  void abandon();

  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  RedistributeOptions options_;
  std::vector<std::function<void()>> ends_;
  int paused_ = 0;
  int pass_ = -1;  // the backward pass whose end was asked for
};

}  // namespace sherd::detail
