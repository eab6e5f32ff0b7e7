#include "tensor/from_local_boxes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "tensor/boxes.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/held_boxes.h"
#include "tensor/take_values.h"

namespace sherd::detail {
namespace {

using at::Tensor;

constexpr const char* kOperation = "from_local";

// What needs no other rank to be seen.
void check_own(const BoxLayout& own, const Placements& placements, const FromLocalOptions& options) {
  const auto refuse = [&](const char* why, const char* fact, const std::string& value, const char* help) {
    throw_value_error(ErrorText(kOperation, why).fact(fact, value).help(help));
  };
  if (!own.outer) {
    refuse("the tensor is distributed already", "tensor", "a ShardedTensor of " + to_string(own.size),
           "sherd::sharded::to_dtensor(tensor)");
  }
  if (options.grad_placements) {
    refuse("the gradient of a LocalShardsWrapper lies in its shards", "grad_placements",
           to_string(*options.grad_placements), "leave grad_placements out");
  }
  if (std::any_of(placements.begin(), placements.end(), is_partial)) {
    refuse("shards hold values, not parts of a sum", "placements", to_string(placements),
           "Shard(dim), or Replicate() on axes whose ranks hold the same shards");
  }
  if (!options.shape) return;
  if (own.outer->size && *own.outer->size != *options.shape) {
    throw_value_error(ErrorText(kOperation, "the shards are those of a tensor of another size")
                          .fact("shards of", to_string(*own.outer->size))
                          .fact("shape", to_string(*options.shape))
                          .help("the wrapper's global_size as the shape"));
  }
  for (const Box& box : own.outer->boxes) check_inside(kOperation, box, *options.shape);
}

// The size of the tensor that all ranks' boxes are parts of.
Dims found_shape(const std::map<int64_t, ToldOfBoxes>& told) {
  const ToldOfBoxes* first = nullptr;
  int64_t first_rank = 0;
  Dims shape;
  std::optional<Dims> known;
  for (const auto& [rank, theirs] : told) {
    const auto size_of = [](const ToldOfBoxes& t) { return t.size ? t.size->size() : t.boxes[0].size.size(); };
    if (first == nullptr) {
      first = &theirs;
      first_rank = rank;
      shape.assign(size_of(theirs), 0);
    }
    const bool fits = size_of(theirs) == shape.size() && (!known || !theirs.size || *known == *theirs.size);
    if (!fits || theirs.dtype != first->dtype) {
      const auto text = [](const ToldOfBoxes& t) {
        return fmt::format("{} {}", t.dtype, t.size ? to_string(*t.size) : to_string(t.boxes[0]));
      };
      throw_value_error(ErrorText(kOperation, "the ranks hold shards of different tensors")
                            .fact(fmt::format("rank {}", first_rank), text(*first))
                            .fact(fmt::format("rank {}", rank), text(theirs))
                            .help("one dtype, one number of dims and one global_size on all ranks"));
    }
    if (theirs.size) known = theirs.size;
    for (const Box& box : theirs.boxes) {
      for (size_t d = 0; d < shape.size(); ++d) shape[d] = std::max(shape[d], box.offset[d] + box.size[d]);
    }
  }
  return known.value_or(shape);
}

std::string text_of(const std::vector<Box>& boxes) {
  std::string text;
  for (const Box& box : boxes) text += (text.empty() ? "" : ", ") + to_string(box);
  return text.empty() ? "none" : text;
}

// The ranks of an axis that replicates the tensor get the data of its first.
void copy_from_first(const HeldBoxes& held, const Tensor& data) {
  const DeviceMesh& mesh = *held.mesh;
  const auto& known = held.of_all(kOperation);
  for (size_t axis = 0; axis < held.placements.size(); ++axis) {
    if (!is_replicate(held.placements[axis])) continue;
    for (const auto& [rank, theirs] : known) {  // of all ranks, so that all throw
      Dims coordinate = *mesh.mesh().coordinate_of(rank);
      coordinate[axis] = 0;
      const int64_t source = mesh.mesh().rank_at(coordinate);
      if (theirs == known.at(source)) continue;
      throw_value_error(ErrorText(kOperation, "ranks of a replicated axis hold different shards")
                            .fact(fmt::format("rank {}", source), text_of(known.at(source)))
                            .fact(fmt::format("rank {}", rank), text_of(theirs))
                            .help("the same shards in the same order along the axis"));
    }
    const auto a = static_cast<int64_t>(axis);
    for (const Tensor& piece : boxes_of(data)->pieces) take_values_of(0, piece, mesh, a);
  }
}

}  // namespace

Tensor from_local_boxes(const Tensor& local, const DeviceMesh& mesh, Placements placements,
                        const FromLocalOptions& options) {
  const BoxLayoutPtr own = boxes_of(local)->layout;
  check_own(*own, placements, options);
  const Tensor data = local.to(mesh.device());
  Dims shape = options.shape.value_or(own->outer->size.value_or(own->size));
  std::map<int64_t, ToldOfBoxes> told;
  if (!options.shape && mesh.coordinate()) {
    told = tell_of_boxes(mesh, *own, data.scalar_type());
    shape = found_shape(told);
  }
  placements = checked(kOperation, mesh, shape, std::move(placements));
  const auto held = std::make_shared<const HeldBoxes>(own, mesh, placements, shape, data.scalar_type());
  if (!told.empty()) {
    HeldBoxes::BoxesByRank known;
    for (const auto& [rank, theirs] : told) known[rank] = theirs.boxes;
    held->learn(kOperation, std::move(known));
    held->check_copies(kOperation);
  }
  if (options.check && mesh.coordinate()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    held->check_copies(kOperation);
    copy_from_first(*held, data);
  }
  const SpecPtr spec = intern_spec(mesh, placements, shape, options.stride.value_or(contiguous_strides(shape)), held);
  return from_local_edge(data, spec, {});
}

}  // namespace sherd::detail
