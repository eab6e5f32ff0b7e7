#pragma once
// A view whose data had to be moved (a row of a sharded dim, say) is a copy. It remembers what it was copied from, so
// that a write to the view reaches the tensor, and a write to the tensor reaches the view.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>

#include "sherd/device_mesh.h"
#include "sherd/layout.h"
#include "tensor/spec.h"

namespace sherd::detail {

struct ViewOrigin;
using ViewOriginPtr = c10::intrusive_ptr<ViewOrigin>;

struct ViewOrigin final : c10::intrusive_ptr_target {
  ViewOrigin(at::Tensor copied, at::Tensor copy, ViewOriginPtr above, const DeviceMesh& on, Dims whole,
             Placements before, Placements after, HeldBoxesPtr held = nullptr);
  /// Of a tensor that lies in boxes, whose copy has the placements that it counts as.
  ViewOrigin(at::Tensor copied, at::Tensor copy, const HeldBoxesPtr& held);
  ~ViewOrigin() override;
  ViewOrigin(const ViewOrigin&) = delete;
  ViewOrigin& operator=(const ViewOrigin&) = delete;

  const at::Tensor base;       // the local tensor that was moved
  const at::Tensor moved;      // the copy; the local tensors of its views share its memory
  const ViewOriginPtr parent;  // where `base` belongs to such a view itself
  const DeviceMesh mesh;
  const Dims shape;
  const Placements from;     // of base
  const HeldBoxesPtr boxes;  // where base lies, if not as `from` says
  const Placements to;       // of moved
  uint64_t seen = 0;         // the writes to base that `moved` knows of
};

/// Fetches the copy anew where its base was written since. Every rank of the mesh calls it alike.
void refresh(ViewOrigin& origin);

/// Brings what was written into the copy to its base. Every rank of the mesh calls it alike.
void write_through(ViewOrigin& origin);

/// How many copied views are alive in this process.
extern std::atomic<int64_t> copied_views;

void count_write(const at::Tensor& local, const DeviceMesh& mesh);

/// Says that a local tensor of this rank was written. What autograd saved of it, through to_local() say, is no longer
/// what it was: torch counts writes too, but those of DTensors are made below where it does.
inline void note_write(const at::Tensor& local, const DeviceMesh& mesh) {
  c10::TensorImpl* impl = local.unsafeGetTensorImpl();
  if (!impl->is_inference()) impl->bump_version();
  if (copied_views.load(std::memory_order_relaxed) != 0) count_write(local, mesh);
}

/// Lets torch count the writes to a view of a local tensor and to what it views as one. Above, torch does so itself.
inline void share_version(const at::Tensor& view, const at::Tensor& viewed) {
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  if (impl->is_inference() || viewed.is_inference()) return;
  impl->set_version_counter(viewed.unsafeGetTensorImpl()->version_counter());
}

}  // namespace sherd::detail
