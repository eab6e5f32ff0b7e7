#include "tensor/held_boxes.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "plan/placement_lists.h"
#include "sherd/collectives.h"
#include "tensor/boxes.h"
#include "tensor/redistributed.h"
#include "tensor/swap_parts.h"
#include "tensor/travel_types.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::RankPart;
using BoxesByRank = HeldBoxes::BoxesByRank;

// The coordinates that tell copies apart.
Dims copy_of(const HeldBoxes& held, const Dims& coordinate) {
  Dims copy;
  for (size_t axis = 0; axis < held.placements.size(); ++axis) {
    if (is_replicate(held.placements[axis])) copy.push_back(coordinate[axis]);
  }
  return copy;
}

std::vector<RankPart> parts_of(const BoxesByRank& boxes, const std::vector<int64_t>& ranks) {
  std::vector<RankPart> parts;
  for (const int64_t rank : ranks) {
    const std::vector<Box>& theirs = boxes.at(rank);
    for (size_t i = 0; i < theirs.size(); ++i) parts.push_back({rank, i, plan::grid_of(theirs[i])});
  }
  return parts;
}

// The rows of an operand that go with a box of the whole tensor.
Box broadcast_box(const Box& box, const Dims& whole, at::IntArrayRef size) {
  const size_t shift = whole.size() - size.size();
  Box result;
  for (size_t d = 0; d < size.size(); ++d) {
    const bool one = size[d] == 1 && whole[d + shift] != 1;
    result.offset.push_back(one ? 0 : box.offset[d + shift]);
    result.size.push_back(one ? 1 : box.size[d + shift]);
  }
  return result;
}

}  // namespace

HeldBoxes::HeldBoxes(BoxLayoutPtr own, const DeviceMesh& on, Placements where, Dims shape, c10::ScalarType type)
    : local(std::move(own)), placements(std::move(where)), dtype(type) {
  size = std::move(shape);
  boxes = local->outer->boxes;
  cut.assign(size.size(), true);
  mesh = on;
}

std::map<int64_t, ToldOfBoxes> tell_of_boxes(const DeviceMesh& mesh, const BoxLayout& own, c10::ScalarType dtype) {
  const std::string size = own.outer->size ? to_string(*own.outer->size) : "";
  const Group group = group_of(mesh);
  const auto texts = all_gather_text(group, dtype_name(dtype) + "\n" + size + "\n" + to_lines(own.outer->boxes));
  std::map<int64_t, ToldOfBoxes> told;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string_view rest = texts[i];
    const auto line = [&] {
      const std::string_view first = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(first.size() + 1);
      return first;
    };
    ToldOfBoxes& theirs = told[group.ranks()[i]];
    theirs.dtype = line();
    const std::string_view known = line();
    if (!known.empty()) theirs.size = parse_dims(known);
    theirs.boxes = from_lines(rest);
  }
  return told;
}

const BoxesByRank& HeldBoxes::of_all(const char* operation) const {
  if (of_all_) return *of_all_;
  const auto told = tell_of_boxes(*mesh, *local, dtype);
  BoxesByRank boxes_by_rank;
  for (const auto& [rank, theirs] : told) {
    if (theirs.dtype != told.begin()->second.dtype) {
      throw_value_error(ErrorText(operation, "the ranks' shards have different dtypes")
                            .fact(fmt::format("rank {}", told.begin()->first), told.begin()->second.dtype)
                            .fact(fmt::format("rank {}", rank), theirs.dtype)
                            .help("shards of one dtype; LocalShardsOptions{.dtype = ...} where a rank has none"));
    }
    boxes_by_rank[rank] = theirs.boxes;
  }
  learn(operation, std::move(boxes_by_rank));
  return *of_all_;
}

void HeldBoxes::learn(const char* operation, BoxesByRank known) const {
  for (const auto& [rank, theirs] : known) {
    for (const Box& box : theirs) check_inside(operation, box, size);
  }
  of_all_ = std::move(known);
}

void HeldBoxes::check_copies(const char* operation) const {
  const BoxesByRank& known = of_all(operation);
  if (tiles_) return;
  std::map<Dims, std::vector<Box>> copies;
  for (const auto& [rank, theirs] : known) {
    std::vector<Box>& copy = copies[copy_of(*this, *mesh->mesh().coordinate_of(rank))];
    copy.insert(copy.end(), theirs.begin(), theirs.end());
  }
  const std::vector<Box>& first = copies.begin()->second;
  for (const auto& entry : copies) {
    const std::vector<Box>& copy = entry.second;
    if (&copy != &first && copy == first) continue;
    as_c10_errors([&] { check_tiling(operation, copy, size); });
  }
  tiles_ = true;
}

std::vector<int64_t> HeldBoxes::copy_ranks() const {
  std::vector<int64_t> ranks;
  if (!mesh->coordinate()) return ranks;
  const Dims copy = copy_of(*this, *mesh->coordinate());
  for (const int64_t rank : mesh->mesh().ranks()) {
    if (copy_of(*this, *mesh->mesh().coordinate_of(rank)) == copy) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool held_alike(const HeldBoxes& a, const HeldBoxes& b) {
  if (&a == &b) return true;
  if (a.size != b.size || !(*a.mesh == *b.mesh)) return false;
  if (!a.mesh->coordinate()) return a.boxes == b.boxes;
  const BoxesByRank& left = a.of_all("redistribute");
  return left == b.of_all("redistribute");
}

Tensor out_of_boxes(const HeldBoxes& held, const Tensor& local, const Placements& to, const OutOfBoxes& options) {
  const DeviceMesh& mesh = *held.mesh;
  const auto on = at::TensorOptions(local.scalar_type()).device(local.device());
  if (!mesh.coordinate()) return at::empty({0}, on);
  held.check_copies(options.operation);
  // Each copy by itself: the axes between copies are dealt with as those of every replicated tensor.
  Placements inside = to;
  for (size_t axis = 0; axis < inside.size(); ++axis) {
    if (is_replicate(held.placements[axis])) inside[axis] = Replicate();
  }
  if (!plan::are_placements(mesh.mesh(), held.size, inside)) inside = held.placements;
  const SpecPtr spec = intern_spec(mesh, inside, held.size, contiguous_strides(held.size));
  const Layout layout = spec->layout();
  const Tensor part = at::empty(spec->local_sizes, on);
  if (!local.is_meta()) {
    const std::vector<int64_t> ranks = held.copy_ranks();
    std::vector<HeldPart> from;
    const auto& pieces = boxes_of(local)->pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      from.push_back({pieces[i].contiguous(), plan::grid_of(held.boxes[i])});
    }
    const std::vector<RankPart> has = parts_of(held.of_all(options.operation), ranks);
    std::vector<RankPart> wants;
    for (const int64_t rank : ranks)
      wants.push_back({rank, 0, plan::grid_of(layout, *mesh.mesh().coordinate_of(rank))});
    // What all ranks are told to do, and not just what is exchanged here.
    const std::string on_mesh = to_string(mesh.mesh());
    const TensorText tensor{dtype_name(held.dtype), held.size, held.placements};
    const std::string text = fmt::format("{} {} on {} in boxes -> {} on {}", options.operation,
                                         to_string(tensor, mesh.mesh()), on_mesh, to_string(to), on_mesh);
    const PurposePtr purpose = purpose_with_boxes(text, has);
    const Staging staging{.purpose = purpose,
                          .elements = largest(has) * replicas(layout) + largest(wants),
                          .limit = options.staging_bytes,
                          .travels = travels_in(part.scalar_type(), options.move_dtype)};
    const Group group = mesh.world().group(ranks);
    swap_parts(options.background ? group.in_background() : group, std::move(from),
               {{part, plan::grid_of(layout, *mesh.coordinate())}}, plan::transfers(has, wants, mesh.world().rank()),
               staging);
  }
  if (inside == to) return part;
  const RedistributeOptions further{.staging_bytes = options.staging_bytes, .move_dtype = options.move_dtype};
  return meta_of(redistributed(wrap(spec, part), to, further, options.background))->local;
}

Tensor ordinary(const Tensor& tensor, const Placements& to, const OutOfBoxes& options) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& spec = *meta->spec;
  return wrap(intern_spec(spec.mesh, to, spec.sizes, contiguous_strides(spec.sizes)),
              out_of_boxes(*spec.boxes, meta->local, to, options));
}

std::vector<Tensor> pieces_in_boxes(const char* operation, const Tensor& dtensor, const HeldBoxes& held) {
  DTensorMeta* meta = meta_of(dtensor);
  const HeldBoxesPtr& lies_in = meta->spec->boxes;
  if (lies_in && held_alike(*lies_in, held)) return boxes_of(meta->local)->pieces;
  if (!held.mesh->coordinate()) {
    std::vector<Tensor> pieces;
    for (const Box& box : held.boxes) {
      pieces.push_back(at::empty(broadcast_box(box, held.size, dtensor.sizes()).size, meta->local.options()));
    }
    return pieces;
  }
  const Tensor there = lies_in ? ordinary(dtensor, meta->spec->placements, {.operation = operation}) : dtensor;
  std::vector<RankPart> wanted;
  for (const auto& [rank, boxes] : held.of_all(operation)) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      wanted.push_back({rank, i, plan::grid_of(broadcast_box(boxes[i], held.size, there.sizes()))});
    }
  }
  std::vector<Box> mine;
  for (const Box& box : held.boxes) mine.push_back(broadcast_box(box, held.size, there.sizes()));
  return read_parts(there, mine, wanted, {.operation = operation});
}

Tensor brought_to_boxes(const Tensor& dtensor, const SpecPtr& spec) {
  const Spec& lies_in = *meta_of(dtensor)->spec;
  if (lies_in.boxes == spec->boxes) return dtensor;
  const bool here = lies_in.mesh == spec->mesh;
  const Tensor there =
      here ? dtensor : redistributed({dtensor}, spec->mesh, {plan::without_partials(spec->placements)}, {}).front();
  return wrap_in_boxes(spec->boxes, pieces_in_boxes("redistribute", there, *spec->boxes), there.scalar_type(),
                       meta_of(there)->local.device());
}

Tensor wrap_in_boxes(const HeldBoxesPtr& held, std::vector<Tensor> pieces, c10::ScalarType dtype, c10::Device device) {
  return wrap(intern_spec(*held->mesh, held->placements, held->size, contiguous_strides(held->size), held),
              wrap_pieces(held->local, std::move(pieces), dtype, device));
}

}  // namespace sherd::detail
