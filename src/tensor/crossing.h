#pragma once
// Tensors that go from one mesh to another: their plans, which are remembered, and carrying them out.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/purpose.h"
#include "plan/crossing.h"
#include "sherd/group.h"
#include "sherd/redistribute.h"
#include "tensor/spec.h"

namespace sherd::detail {

/// What this rank does when a tensor crosses to another mesh.
struct Crossing {
  SpecPtr from;
  SpecPtr target;  // with its mesh's ranks in another order where that was allowed
  plan::Redistribution plan;
  plan::Transfers transfers;    // where nothing is reduced
  plan::Reductions reductions;  // where something is
  int64_t most_given = 0;       // elements, and
  int64_t most_taken = 0;       // by any rank: the same on all of them
  std::optional<Group> all;     // the ranks of both meshes; none where this one is in neither
  std::optional<Group> having;  // those of the mesh that it comes from, where this one is in it
  std::optional<Group> alike;   // those that want what this one wants, where they share the work of reducing it
  std::string text;             // of what is moved where, for the ranks to compare
  PurposePtr purpose;
};
using CrossingPtr = std::shared_ptr<const Crossing>;

/// Made once per thread. `from` is no spec of boxes, and the meshes are of one world.
CrossingPtr crossing_between(const SpecPtr& from, const SpecPtr& to, c10::ScalarType dtype,
                             const RedistributeOptions& options);

/// Tensors on the other mesh, given this rank's parts: those of one dtype share their messages. All go between the same
/// two meshes; every rank of both calls it. `background`: by groups that nothing else uses. Below autograd.
std::vector<at::Tensor> crossed(const std::vector<CrossingPtr>& ways, const std::vector<at::Tensor>& locals,
                                const RedistributeOptions& options, bool background);

}  // namespace sherd::detail
