#pragma once
// Convolutions and pools over sharded space: which rows of the input a rank's windows reach into.

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/pieces.h"
#include "sherd/layout.h"

namespace sherd::plan {

/// How the windows of one spatial dim lie: window i begins at row i * stride - padding and reaches `reach` rows.
struct Windows {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t reach = 1;
  bool hangs_over = false;  // ceil_mode: the last one may end beyond the padding

  /// How many there are over so many rows, as torch counts them.
  int64_t count(int64_t rows) const;
};

/// What a call says of its windows. A list is empty, one number for all dims, or has one per dim.
struct WindowLists {
  Dims kernel;
  Dims stride;  // 1 where it is empty
  Dims padding;
  Dims dilation;
  bool ceil_mode = false;
};

/// The windows along so many dims; nothing where torch has none of that kind: lists of another length, windows of no
/// rows or no step.
std::optional<std::vector<Windows>> windows_of(size_t dims, const WindowLists& lists);

/// A convolution or pool. The last dims of the input are those that windows move along.
struct WindowCall {
  Dims input;
  Placements input_placements;
  std::vector<Windows> windows;  // one per spatial dim
  // Of a convolution alone.
  std::optional<Dims> weight;
  Placements weight_placements;  // Replicate where it is not distributed
  bool grouped = false;

  int64_t first_spatial() const { return static_cast<int64_t>(input.size()) - static_cast<int64_t>(windows.size()); }
};

/// What one sharded dim needs. The local operator pads its rows as the whole one does, so a part begins at a multiple
/// of the stride, so far ahead of its first window that the padding only matters where it is the whole's.
struct HaloRows {
  PieceRows input;
  PieceRows output;
  WantedRows wanted;  // of the input, one range per piece, or none where it has no results

  /// How many results the local operator has before a piece's first.
  int64_t skip(size_t piece, const Windows& windows) const;
};

struct WindowPlan {
  Placements input;   // of the input and of its gradient
  Placements weight;  // of weight and bias, dim 0 being that of the channels that come out
  Placements output;
  Dims output_sizes;
  std::vector<HaloRows> halos;  // one per spatial dim that is sharded
};

/// Nothing where no spatial dim is sharded, or one is not in pieces, or where a window has no place. Batch and channels
/// that come out may be sharded beside them.
std::optional<WindowPlan> plan_windows(const Mesh& mesh, const WindowCall& call);

}  // namespace sherd::plan
