#pragma once
// Who writes which part of a checkpoint. Every rank computes the same answer from what all of them know; nothing is
// sent.

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "sherd/layout.h"

namespace sherd::plan {

/// A box and the places in the group of those that hold it.
struct HeldBox {
  Box box;
  std::vector<int32_t> holders;
};
/// A tensor in boxes that somebody listed. One that all ranks have whole is one box with all of them.
struct ListedTensor {
  Dims size;
  std::vector<HeldBox> boxes;
};
/// `place_of_rank` gives the place in the group of a mesh's rank, -1 for one that is not in it; empty: the rank itself.
struct LaidOutTensor {
  const Layout* layout = nullptr;  // without Partials
  std::span<const int32_t> place_of_rank = {};
};

struct SavedTensor {
  int64_t element_bytes = 1;
  std::variant<ListedTensor, LaidOutTensor> held;
};

/// The chunks of one tensor, each written once. Their numbers lie in one row: there may be millions.
struct WrittenChunks {
  std::vector<int64_t> numbers;  // per chunk its offsets, then its sizes
  std::vector<int32_t> writers;  // per chunk the place in the group of the rank that writes it; -1: nobody has it
};

struct SavePlan {
  std::vector<WrittenChunks> tensors;
  std::vector<int64_t> bytes;  // per rank
};

/// Boxes that one rank alone holds are written by it. The others, the largest first, go to that of their holders which
/// has the least to write so far. A tensor without elements is one chunk of its first rank. Linear in tensors times
/// ranks.
SavePlan plan_save(std::span<const SavedTensor> tensors, int64_t ranks);

}  // namespace sherd::plan
