#pragma once
// How autograd is to repeat a write to a view of a DTensor.

#include <c10/core/AutogradState.h>

#include "tensor/meta.h"

namespace sherd::detail {

/// To be called at the end of the kernel of a view: autograd then asks how a write to it is to be replayed. That must
/// be through the view itself, for by geometry alone it would be wrong, unless `geometry_tells`. To be ready for it
/// takes about ten allocations. A view made while no gradients are recorded, as in a backward pass, needs none of it:
/// autograd refuses to record a write to it.
inline void choose_replay(bool geometry_tells = false) {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  state.set_view_replay_enabled(state.get_grad_mode() && !geometry_tells);
}

/// Whether sizes and strides say where a view of all elements stands in the memory of what it views: on one rank, where
/// the part is the whole, if both lie in memory as they say.
inline bool geometry_tells(const DTensorMeta& viewed, const DTensorMeta& view) {
  const auto lies_as_it_says = [](const DTensorMeta& meta) {
    return meta.local.strides() == at::IntArrayRef(meta.spec->strides);
  };
  return view.spec->mesh.size() == 1 && !view.is_cut && view.spec->gathers == 0 && lies_as_it_says(viewed) &&
         lies_as_it_says(view);
}

}  // namespace sherd::detail
