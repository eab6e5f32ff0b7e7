// Between a DTensor and boxes that the ranks name.

#include "tensor/boxes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <map>

#include "comm/answers.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "plan/crossing.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/redistribute.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/meta.h"
#include "tensor/redistributed.h"
#include "tensor/reduce_parts.h"
#include "tensor/swap_parts.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::HeldPart;
using plan::RankPart;

// The boxes of every rank of the group.
std::vector<RankPart> boxes_of_all(const Group& group, const std::vector<Box>& mine) {
  const std::vector<std::string> texts = all_gather_text(group, detail::to_lines(mine));
  std::vector<RankPart> parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<Box> theirs = detail::from_lines(texts[i]);
    for (size_t k = 0; k < theirs.size(); ++k) parts.push_back({group.ranks()[i], k, plan::grid_of(theirs[k])});
  }
  return parts;
}

// An error on every rank where they mean different tensors, by what each of them told: they would wait for each other,
// or take each other's elements for their own.
void check_same_tensor(const char* operation, const Group& group, const std::vector<std::string>& told) {
  for (size_t i = 1; i < told.size(); ++i) {
    if (told[i] == told[0]) continue;
    detail::throw_value_error(
        ErrorText(operation, "the ranks mean different tensors")
            .fact(fmt::format("rank {}", group.ranks()[0]), told[0])
            .fact(fmt::format("rank {}", group.ranks()[i]), told[i])
            .help(fmt::format("call {} with the same shape, placements and dtype on every rank", operation)));
  }
}

}  // namespace

namespace detail {

std::string to_lines(const std::vector<Box>& boxes) {
  std::string text;
  for (const Box& box : boxes) text += to_string(box) + "\n";
  return text;
}

std::vector<Box> from_lines(std::string_view text) {
  std::vector<Box> boxes;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    boxes.push_back(parse_box(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return boxes;
}

int64_t largest(const std::vector<RankPart>& parts) {
  std::map<int64_t, int64_t> elements;
  int64_t most = 0;
  for (const RankPart& part : parts) most = std::max(most, elements[part.rank] += plan::numel(part.rows));
  return most;
}

void check_inside(const char* operation, const Box& box, const Dims& shape) {
  const Box whole{Dims(shape.size(), 0), shape};
  bool fits = box.size.size() == shape.size() && box.offset.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits =
        box.offset[d] >= 0 && box.size[d] >= 0 && box.offset[d] <= shape[d] && box.size[d] <= shape[d] - box.offset[d];
  }
  if (fits) return;
  throw_value_error(ErrorText(operation, "a box is not inside the tensor")
                        .fact("box", to_string(box))
                        .fact("tensor", to_string(shape))
                        .help(fmt::format("boxes inside {}", to_string(whole))));
}

void check_staging(const char* operation, int64_t staging_bytes, const char* help) {
  if (staging_bytes >= 1) return;
  throw_value_error(ErrorText(operation, "the staging buffer must hold something")
                        .fact("staging_bytes", std::to_string(staging_bytes))
                        .help(help));
}

std::vector<Tensor> read_parts(const Tensor& dtensor, const std::vector<Box>& boxes,
                               const std::vector<RankPart>& wanted, const ReadParts& options) {
  DTensorMeta* meta = meta_of(dtensor);
  const DeviceMesh& mesh = meta->spec->mesh;
  const Layout layout = meta->spec->layout();
  const Tensor& local = current_local(*meta);
  std::vector<Tensor> results;
  std::vector<HeldPart> to;
  for (const Box& box : boxes) {
    results.push_back(at::empty(box.size, local.options()));
    to.push_back({results.back(), plan::grid_of(box)});
  }
  if (meta->spec->has_partial) check_can_reduce(options.operation, layout, local.options(), {});
  if (local.is_meta()) return results;
  // Bytes are sent as they lie in memory.
  const HeldPart held{local.resolve_conj().resolve_neg().contiguous(), plan::grid_of(layout, *mesh.coordinate())};
  const int64_t rank = mesh.world().rank();
  const PurposePtr purpose =
      purpose_with_boxes(fmt::format("{} {}", options.operation, describe(*meta->spec, local.scalar_type())), wanted);
  const plan::Contributions parts = plan::contributions(layout, wanted, rank);
  if (parts.parts == 1) {  // no Partials
    swap_parts(group_of(mesh), {held}, std::move(to), plan::transfers(layout, wanted, rank),
               {.purpose = purpose, .elements = parts.most_given + largest(wanted), .limit = options.staging_bytes});
    return results;
  }
  PartsToReduce all{.layout = layout,
                    .held = held,
                    .parts = parts.parts,
                    .contributions = parts.transfers,
                    .most_taken = largest(wanted),
                    .most_given = parts.most_given};
  for (const plan::Contributions::Piece& piece : parts.pieces) all.pieces.push_back({piece.rows, to.at(piece.number)});
  reduce_parts(group_of(mesh), {&all}, {.purpose = purpose, .staging_bytes = options.staging_bytes});
  return results;
}

}  // namespace detail

namespace {

constexpr const char* kBoxesHelp = "BoxesOptions{.staging_bytes = 64 << 20}";

}  // namespace

std::vector<Tensor> read_boxes(const Tensor& tensor, const std::vector<Box>& boxes, const BoxesOptions& options) {
  constexpr const char* kOperation = "read_boxes";
  const auto& given = detail::require_dtensor(kOperation, tensor).spec;
  if (!given->mesh.coordinate()) return {};
  const Group group = detail::group_of(given->mesh);
  const auto told = detail::answers_of_all(group, kOperation, [&] {
    detail::check_staging(kOperation, options.staging_bytes, kBoxesHelp);
    for (const Box& box : boxes) detail::check_inside(kOperation, box, given->sizes);
    return to_string(tensor);
  });
  check_same_tensor(kOperation, group, told);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Tensor settled = given->boxes ? detail::redistributed(tensor, given->placements) : tensor;
  return detail::read_parts(settled, boxes, boxes_of_all(group, boxes),
                            {.operation = kOperation, .staging_bytes = options.staging_bytes});
}

Tensor from_boxes(const std::vector<BoxTensor>& boxes, const Dims& shape, const DeviceMesh& mesh, Placements placements,
                  c10::ScalarType dtype, const BoxesOptions& boxes_options) {
  constexpr const char* kOperation = "from_boxes";
  placements = detail::checked(kOperation, mesh, shape, std::move(placements));
  for (const Placement& p : placements) {
    if (!is_partial(p)) continue;
    detail::throw_value_error(ErrorText(kOperation, "boxes hold values, not parts of a sum")
                                  .fact("placements", to_string(placements))
                                  .help("Replicate() or Shard(0) instead of Partial()"));
  }
  const auto options = at::TensorOptions(dtype).device(mesh.device());
  const auto spec = detail::intern_spec(mesh, placements, shape, detail::contiguous_strides(shape));
  if (!mesh.coordinate()) return detail::wrap(spec, at::empty({0}, options));
  const Group group = detail::group_of(mesh);
  const auto told = detail::answers_of_all(group, kOperation, [&] {
    detail::check_staging(kOperation, boxes_options.staging_bytes, kBoxesHelp);
    for (const BoxTensor& piece : boxes) {
      detail::check_inside(kOperation, piece.box, shape);
      if (piece.tensor.sizes() == at::IntArrayRef(piece.box.size) && piece.tensor.scalar_type() == dtype) continue;
      detail::throw_value_error(ErrorText(kOperation, "a tensor does not fit its box")
                                    .fact("box", fmt::format("{}, {}", to_string(piece.box), detail::dtype_name(dtype)))
                                    .fact("tensor", fmt::format("{} {}", to_string(piece.tensor.sizes().vec()),
                                                                detail::dtype_name(piece.tensor.scalar_type())))
                                    .help("BoxTensor{box, tensor} with tensor.sizes() == box.size"));
    }
    return to_string(TensorText{detail::dtype_name(dtype), shape, placements}, mesh.mesh()) + " on " +
           to_string(mesh.mesh());
  });
  check_same_tensor(kOperation, group, told);
  std::vector<Box> mine;
  for (const BoxTensor& piece : boxes) mine.push_back(piece.box);
  const std::vector<RankPart> held = boxes_of_all(group, mine);
  // Every rank knows all boxes: all of them throw here, or none does.
  std::vector<Box> all;
  for (const RankPart& part : held) {
    Box box;
    for (const plan::RunList& runs : part.rows) {
      box.offset.push_back(runs.empty() ? 0 : runs[0].offset);
      box.size.push_back(runs.empty() ? 0 : runs[0].size);
    }
    all.push_back(std::move(box));
  }
  detail::as_c10_errors([&] { check_tiling(kOperation, all, shape); });
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Layout layout{mesh.mesh(), shape, placements};
  const plan::RunGrid wanted = plan::grid_of(layout, *mesh.coordinate());
  const Tensor local = at::empty(plan::shape_of(wanted), options);
  std::vector<HeldPart> from;
  for (const BoxTensor& piece : boxes) {
    from.push_back({piece.tensor.detach().to(mesh.device()).contiguous(), plan::grid_of(piece.box)});
  }
  const detail::PurposePtr purpose = detail::purpose_with_boxes(fmt::format("{} {}", kOperation, told[0]), held);
  detail::swap_parts(group, std::move(from), {{local, wanted}}, plan::transfers(held, layout, mesh.world().rank()),
                     {.purpose = purpose,
                      .elements = detail::largest_part(layout) + detail::largest(held) * detail::replicas(layout),
                      .limit = boxes_options.staging_bytes});
  return detail::wrap(spec, local);
}

}  // namespace sherd
