#pragma once
// Small questions about placement lists that several parts of the planning ask.

#include "sherd/layout.h"

namespace sherd::plan {

/// Whether these can be the placements of a tensor of `shape`. Only cuts that a user chose can fail to fit the axes to
/// their left; everything else is expected to be checked already.
bool are_placements(const Mesh& mesh, const Dims& shape, const Placements& placements);

/// Partials as Replicate.
Placements without_partials(Placements placements);

/// Whole along the axes that cut `dim`; where the dim goes, those after it move up.
Placements without_dim(Placements placements, int64_t dim, bool dim_goes);

}  // namespace sherd::plan
