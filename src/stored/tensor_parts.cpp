#include "stored/tensor_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "sherd/damage.h"
#include "sherd/error.h"
#include "stored/as_damage.h"
#include "stored/copy_elements.h"

namespace sherd::stored {
namespace {

Box relative_to(const Box& box, const Dims& origin) {
  Box moved = box;
  for (size_t d = 0; d < origin.size(); ++d) moved.offset[d] -= origin[d];
  return moved;
}

}  // namespace

TensorParts::TensorParts(StoredCheckpoint& checkpoint, const format::MetadataEntry& entry, std::string operation)
    : entry_(entry),
      tensor_(std::get<format::TensorEntry>(entry.content)),
      operation_(std::move(operation)),
      reader_(checkpoint) {}

void TensorParts::check_covered(const Box& box) const {
  if (numel(box) == 0) return;
  std::vector<Box> parts;
  for (size_t i = 0; i < tensor_.chunk_count(); ++i) {
    if (const auto part = intersect(tensor_.box(i), box)) parts.push_back(relative_to(*part, box.offset));
  }
  auto fault = find_tiling_fault(parts, box.size);
  if (!fault) return;
  for (size_t d = 0; d < box.offset.size(); ++d) fault->box.offset[d] += box.offset[d];
  const bool hole = fault->kind == TilingFault::Kind::hole;
  throw DamagedCheckpoint(
      ErrorText(operation_, hole ? "a part of a tensor is stored nowhere" : "a part of a tensor is stored twice")
          .fact("reading", "tensor " + entry_.name)
          .fact("part", to_string(fault->box))
          .help("another checkpoint: this one is not complete"));
}

void TensorParts::read(const Box& box, std::byte* into) {
  as_damage([&] { reader_.read(entry_, box, into, row_major(box.size)); });
}

void for_each_tile(const Box& box, int64_t most, const std::function<void(const Box& tile)>& visit) {
  if (numel(box) <= most) {
    visit(box);
    return;
  }
  size_t dim = 0;
  while (box.size[dim] == 1) ++dim;
  const int64_t rows = std::max<int64_t>(most / (numel(box) / box.size[dim]), 1);
  for (int64_t row = 0; row < box.size[dim]; row += rows) {
    Box tile = box;
    tile.offset[dim] += row;
    tile.size[dim] = std::min(rows, box.size[dim] - row);
    for_each_tile(tile, most, visit);
  }
}

}  // namespace sherd::stored
