#pragma once
// What is known of a DTensor without its data. Specs are interned: equal ones are one object, so that an operator's
// cached plan is found by comparing pointers.

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "sherd/device_mesh.h"
#include "sherd/layout.h"

namespace sherd::detail {

struct HeldBoxes;
using HeldBoxesPtr = std::shared_ptr<const HeldBoxes>;

class Spec final : public c10::intrusive_ptr_target {
 public:
  Spec(DeviceMesh on, Placements where, Dims global_sizes, Dims global_strides, HeldBoxesPtr held,
       uint64_t gather_axes);

  const DeviceMesh mesh;
  const Placements placements;
  const Dims sizes;
  const Dims strides;
  const Dims local_sizes;  // of this rank; {0} outside the mesh
  const bool has_partial;
  const bool is_whole;  // every rank's part has all elements
  /// Where the data lie, where that is in boxes which the ranks name themselves (held_boxes.h). The placements then say
  /// what the tensor is moved to before an operator that cannot go box by box.
  const HeldBoxesPtr boxes;
  /// Bit a: an operator that uses the tensor beside others gets it whole along mesh axis a (fully_shard). Views of the
  /// tensor are used in the same way; what operators make of it is not.
  const uint64_t gathers;

  Layout layout() const { return {mesh.mesh(), sizes, placements}; }
};

using SpecPtr = c10::intrusive_ptr<const Spec>;

/// The one Spec with these contents. `placements` are checked ones. Thread safe.
SpecPtr intern_spec(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const Dims& strides,
                    const HeldBoxesPtr& boxes = nullptr, uint64_t gathers = 0);

/// Row-major strides.
Dims contiguous_strides(const Dims& sizes);

/// Strides for a tensor of `sizes` whose dims lie in memory in the order of the local tensor's; a dim of local stride
/// 0 (expanded) has stride 0.
Dims strides_like(const Dims& sizes, at::IntArrayRef local_sizes, at::IntArrayRef local_strides);

}  // namespace sherd::detail
