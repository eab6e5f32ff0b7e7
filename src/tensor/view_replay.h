#pragma once
// How autograd is to repeat a write to a view of a DTensor.

#include <c10/core/AutogradState.h>

#include <algorithm>

#include "tensor/meta.h"

namespace sherd::detail {

/// Whether sizes and strides say where a view of all elements stands in the memory of what it views: where every rank's
/// part is the whole, if both lie in memory as they say. To repeat a write needs no other rank then, either way.
inline bool geometry_tells(const DTensorMeta& viewed, const DTensorMeta& view) {
  const auto is_whole = [](const Spec& spec) {
    return spec.mesh.size() == 1 || std::all_of(spec.placements.begin(), spec.placements.end(), is_replicate);
  };
  const auto lies_as_it_says = [](const DTensorMeta& meta) {
    return meta.local.strides() == at::IntArrayRef(meta.spec->strides);
  };
  return !view.is_cut && view.spec->gathers == 0 && is_whole(*view.spec) && is_whole(*viewed.spec) &&
         lies_as_it_says(viewed) && lies_as_it_says(view);
}

/// To be called at the end of the kernel of a view: autograd then asks how a write to it is to be replayed. That must
/// be through the view itself, for by geometry alone it would be wrong, unless `geometry_tells()`. To be ready for it
/// takes about ten allocations. A view made while no gradients are recorded, as in a backward pass, needs none of it:
/// autograd refuses to record a write to it.
template <class Tells>
void choose_replay(const Tells& geometry_tells) {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  state.set_view_replay_enabled(state.get_grad_mode() && !geometry_tells());
}

}  // namespace sherd::detail
