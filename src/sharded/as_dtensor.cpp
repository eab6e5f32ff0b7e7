#include "sharded/as_dtensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "comm/call.h"
#include "comm/errors.h"
#include "sharded/call_tensors.h"
#include "sharded/moves.h"
#include "tensor/boxes.h"
#include "tensor/redistributed.h"
#include "tensor/swap_parts.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using sharded::ChunkShardingSpec;
using sharded::EnumerableShardingSpec;
using sharded::RemoteDevice;
using sharded::ShardMetadata;
using torch::jit::Stack;

// Where the rectangles of a grid begin, per dim, and the rank of each cell in row-major order.
struct CellGrid {
  std::vector<Dims> cuts;  // with the size at the end
  std::vector<int64_t> ranks;
};

std::optional<CellGrid> grid_of_cells(const ShardedLayout& layout) {
  const auto parts = layout.parts();
  if (parts.size() != layout.holders.ranks().size()) return std::nullopt;
  const size_t ndim = layout.size.size();
  CellGrid grid;
  size_t cells = 1;
  for (size_t d = 0; d < ndim; ++d) {
    Dims cuts;
    for (size_t i = 0; i < parts.size(); ++i) cuts.push_back(layout.spec.kind().shard(layout.size, i).shard_offsets[d]);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    cells *= cuts.size();
    cuts.push_back(layout.size[d]);
    grid.cuts.push_back(std::move(cuts));
  }
  if (cells != parts.size()) return std::nullopt;
  grid.ranks.assign(cells, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const ShardMetadata shard = layout.spec.kind().shard(layout.size, i);
    size_t cell = 0;
    for (size_t d = 0; d < ndim; ++d) {
      const Dims& cuts = grid.cuts[d];
      const auto at =
          static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end() - 1, shard.shard_offsets[d]) - cuts.begin());
      if (cuts[at + 1] - cuts[at] != shard.shard_sizes[d]) return std::nullopt;
      cell = cell * (cuts.size() - 1) + at;
    }
    if (grid.ranks[cell] != -1) return std::nullopt;
    grid.ranks[cell] = parts[i].rank;
  }
  return grid;
}

bool all_different(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
}

MeshForm over(const ShardedLayout& layout, std::vector<MeshAxis> axes, const std::vector<int64_t>& ranks,
              Placements placements) {
  if (layout.mesh && axes.size() == 1 && ranks == layout.holders.ranks()) return {*layout.mesh, std::move(placements)};
  return {DeviceMesh(c10::DeviceTypeName(layout.device.type(), true), Mesh(std::move(axes), ranks)),
          std::move(placements)};
}

// The rows of a dim as an axis cuts them: evenly where that is what the cuts are.
Placement placement_of(int64_t dim, const Dims& cuts) {
  const auto count = static_cast<int64_t>(cuts.size()) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const Run rows = chunk(cuts.back(), count, i);
    if (rows.offset != cuts[static_cast<size_t>(i)]) return Ragged(dim, cuts);
  }
  return Shard(dim);
}

// Any layout on the mesh of its group: cut along the longest dim.
Placements usual_placements(const ShardedLayout& layout) {
  const auto longest = std::max_element(layout.size.begin(), layout.size.end());
  if (longest == layout.size.end()) return {Replicate()};
  return {Shard(longest - layout.size.begin())};
}

// A DTensor on `mesh` of a ShardedTensor that lies otherwise, by one exchange.
Tensor moved_dtensor(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  const ShardedLayout& from = *sharded_layout(tensor);
  const SpecPtr spec = intern_spec(mesh, placements, from.size, contiguous_strides(from.size));
  const auto options = at::TensorOptions(tensor.scalar_type()).device(from.device);
  const Tensor local = at::empty(spec->local_sizes, options);
  if (!mesh.coordinate()) return wrap(spec, local);
  const Layout to = spec->layout();
  std::vector<HeldPart> held;
  const std::vector<Tensor> pieces = plain_pieces(tensor);
  for (size_t i = 0; i < pieces.size(); ++i) held.push_back({pieces[i], plan::grid_of(from.boxes[i])});
  const auto parts = from.parts();
  const TensorText text{dtype_name(tensor.scalar_type()), from.size, placements};
  const PurposePtr purpose =
      purpose_with_boxes("a ShardedTensor to " + to_string(text, mesh.mesh()) + " on " + to_string(mesh.mesh()), parts);
  swap_parts(*from.holders.group(), std::move(held), {{local, plan::grid_of(to, *mesh.coordinate())}},
             plan::transfers(parts, to, from.holders.rank()),
             {.purpose = purpose, .elements = largest_part(to) + largest(parts) * replicas(to)});
  return wrap(spec, local);
}

// The values of a DTensor in the rectangles of a layout.
Tensor moved_sharded(const Tensor& dtensor, const ShardedLayoutPtr& to) {
  DTensorMeta* meta = meta_of(dtensor);
  std::vector<Tensor> pieces;
  std::vector<HeldPart> wanted;
  for (const Box& box : to->boxes) {
    pieces.push_back(at::empty(box.size, meta->local.options()));
    wanted.push_back({pieces.back(), plan::grid_of(box)});
  }
  const DeviceMesh& mesh = meta->spec->mesh;
  if (mesh.coordinate()) {
    const Layout from = meta->spec->layout();
    const auto parts = to->parts();
    const PurposePtr purpose =
        purpose_with_boxes(describe(*meta->spec, dtensor.scalar_type()) + " to a ShardedTensor", parts);
    swap_parts(*to->holders.group(), {{current_local(*meta).contiguous(), plan::grid_of(from, *mesh.coordinate())}},
               std::move(wanted), plan::transfers(from, parts, to->holders.rank()),
               {.purpose = purpose, .elements = largest_part(from) + largest(parts)});
  }
  return wrap_sharded(to, std::move(pieces), dtensor.scalar_type());
}

class DTensorCall {
 public:
  DTensorCall(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack)
      : op_(op), info_(info), stack_(stack), base_(stack.size() - info.arguments.size()) {}

  bool run() {
    tensors_ = tensors_of(info_, stack_);
    for (const CallTensor& tensor : tensors_) {
      if (boxes_of(tensor.tensor) == nullptr) continue;
      const ShardedLayout* layout = sharded_layout(tensor.tensor);
      if (layout == nullptr || !layout->holders.world()) return false;
      if (lead_ == nullptr) lead_ = layout;
    }
    if (lead_ == nullptr || info_.has_out || info_.is_inplace_view) return false;
    form_ = mesh_form(*lead_);
    if (!form_) form_ = MeshForm{group_mesh(*lead_), usual_placements(*lead_)};
    Stack call(stack_.begin() + static_cast<int64_t>(base_), stack_.end());
    std::vector<Tensor> dtensors;
    for (const CallTensor& place : tensors_) {
      dtensors.push_back(sharded_layout(place.tensor) != nullptr ? as_dtensor(place.tensor) : Tensor());
      if (dtensors.back().defined()) put_tensor(call, place, dtensors.back());
    }
    op_.callBoxed(call);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (dtensors[i].defined() && info_.arguments[tensors_[i].argument].written) {
        write_back(tensors_[i].tensor, dtensors[i]);
      }
    }
    for (size_t k = 0; k < info_.return_of.size(); ++k) {
      if (info_.return_of[k] >= 0) {
        call[k] = stack_[base_ + static_cast<size_t>(info_.return_of[k])];
      } else if (call[k].isTensor()) {
        call[k] = answer(call[k].toTensor());
      } else if (call[k].isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& tensor : call[k].toTensorVector()) list.push_back(answer(tensor));
        call[k] = std::move(list);
      }
    }
    torch::jit::drop(stack_, info_.arguments.size());
    for (c10::IValue& value : call) stack_.push_back(std::move(value));
    return true;
  }

 private:
  static DeviceMesh group_mesh(const ShardedLayout& layout) {
    if (layout.mesh) return *layout.mesh;
    const auto& ranks = layout.holders.ranks();
    return {c10::DeviceTypeName(layout.device.type(), true), Mesh({{"", static_cast<int64_t>(ranks.size())}}, ranks)};
  }

  Tensor as_dtensor(const Tensor& tensor) {
    const ShardedLayout& layout = *sharded_layout(tensor);
    if (!(layout.holders == lead_->holders)) {
      throw_error(ErrorText(info_.short_name(), "the tensors belong to different groups")
                      .fact("one", to_string(lead_->holders.ranks()))
                      .fact("other", to_string(layout.holders.ranks()))
                      .help("make both on one group"));
    }
    const auto form = mesh_form(layout);
    if (form && form->mesh == form_->mesh) return shared_dtensor(tensor, *form);
    if (info_.is_view) refuse_view(tensor);
    const bool one_axis = form_->mesh.ndim() == 1;
    Placements placements =
        one_axis ? usual_placements(layout) : Placements(static_cast<size_t>(form_->mesh.ndim()), Replicate());
    if (!one_axis && !layout.size.empty()) placements.back() = usual_placements(layout).front();
    return moved_dtensor(tensor, form_->mesh, placements);
  }

  [[noreturn]] void refuse_view(const Tensor& tensor) const {
    throw c10::NotImplementedError(ErrorText(info_.short_name(), "this view does not follow the shards' borders")
                                       .fact("tensor", sharded::to_string(sharded::ShardedTensor(tensor)))
                                       .help("reshard along another dim first, or sherd::sharded::to_dtensor(tensor)")
                                       .str());
  }

  // What the operator wrote, where it did not write into the pieces themselves.
  void write_back(const Tensor& tensor, const Tensor& dtensor) const {
    const auto& pieces = boxes_of(tensor)->pieces;
    const bool shares = pieces.size() == 1 && meta_of(dtensor)->local.is_alias_of(pieces[0]);
    const bool written = mesh_form(*sharded_layout(tensor)).has_value() && (pieces.empty() || shares);
    if (written) return;
    const Tensor there = moved_sharded(dtensor, shared_layout(tensor));
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].copy_(boxes_of(there)->pieces[i]);
  }

  Tensor answer(const Tensor& result) const {
    DTensorMeta* meta = meta_of(result);
    if (meta == nullptr) return result;
    if (info_.is_view && meta->origin) refuse_view(tensors_[0].tensor);
    if (auto shared = shared_sharded(result, lead_->holders)) return *shared;
    const Tensor whole = redistributed(result, Placements(meta->spec->placements.size(), Replicate()));
    return current_local(*meta_of(whole));
  }

  const c10::OperatorHandle& op_;
  const OpInfo& info_;
  Stack& stack_;
  const size_t base_;
  std::vector<CallTensor> tensors_;
  const ShardedLayout* lead_ = nullptr;
  std::optional<MeshForm> form_;
};

}  // namespace

std::optional<MeshForm> mesh_form(const ShardedLayout& layout) {
  const auto ranks_of_group = static_cast<int64_t>(layout.holders.ranks().size());
  if (const auto* chunks = layout.spec.as<ChunkShardingSpec>()) {
    if (static_cast<int64_t>(chunks->count()) != ranks_of_group) return std::nullopt;
    std::vector<int64_t> ranks;
    for (const plan::RankPart& part : layout.parts()) ranks.push_back(part.rank);
    if (!all_different(ranks)) return std::nullopt;
    return over(layout, {{"", ranks_of_group}}, ranks, {Shard(static_cast<int64_t>(cut_dim(*chunks, layout.size)))});
  }
  const auto grid = grid_of_cells(layout);
  if (!grid || !all_different(grid->ranks)) return std::nullopt;
  std::vector<MeshAxis> axes;
  Placements placements;
  for (size_t d = 0; d < grid->cuts.size(); ++d) {
    if (grid->cuts[d].size() == 2) continue;
    axes.push_back({"", static_cast<int64_t>(grid->cuts[d].size()) - 1});
    placements.push_back(placement_of(static_cast<int64_t>(d), grid->cuts[d]));
  }
  if (axes.empty()) {
    axes.push_back({"", 1});
    placements.push_back(Replicate());
  }
  return over(layout, std::move(axes), grid->ranks, std::move(placements));
}

Tensor shared_dtensor(const Tensor& tensor, const MeshForm& form) {
  const auto& pieces = boxes_of(tensor)->pieces;
  const Dims size = tensor.sizes().vec();
  if (!pieces.empty()) return wrap(spec_for(form.mesh, form.placements, size, pieces[0]), pieces[0].detach());
  const SpecPtr spec = intern_spec(form.mesh, form.placements, size, contiguous_strides(size));
  return wrap(spec, at::empty(spec->local_sizes, at::TensorOptions(tensor.scalar_type()).device(tensor.device())));
}

std::optional<Tensor> shared_sharded(const Tensor& tensor, const Holders& holders) {
  DTensorMeta* meta = meta_of(tensor);
  const Spec& spec = *meta->spec;
  const Mesh& mesh = spec.mesh.mesh();
  bool cut = false;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    const bool alone = mesh.size(static_cast<int64_t>(axis)) == 1;
    const auto* strided = std::get_if<StridedShard>(&spec.placements[axis]);
    if (strided != nullptr && !alone) return std::nullopt;
    if (!is_shard(spec.placements[axis]) && !(alone && is_replicate(spec.placements[axis]))) return std::nullopt;
    cut |= is_shard(spec.placements[axis]);
  }
  if (!cut) return std::nullopt;  // one rank that has all of it: as well a plain tensor
  const c10::Device device = c10::Device(spec.mesh.device_type());
  const auto make_spec = [&]() -> sharded::ShardingSpec {
    if (mesh.ndim() == 1) {
      if (const auto* shard = std::get_if<Shard>(&spec.placements[0])) {
        std::vector<RemoteDevice> placements;
        for (const int64_t rank : mesh.ranks()) placements.emplace_back(rank, device);
        return ChunkShardingSpec(shard->dim, std::move(placements));
      }
    }
    std::vector<ShardMetadata> shards;
    for (int64_t i = 0; i < mesh.size(); ++i) {
      const Dims coordinate = mesh.coordinate_at(i);
      shards.emplace_back(local_offset(spec.layout(), coordinate), local_shape(spec.layout(), coordinate),
                          RemoteDevice(mesh.rank_at(coordinate), device));
    }
    return EnumerableShardingSpec(std::move(shards));
  };
  const auto layout = make_layout("ShardedTensor", make_spec(), spec.sizes, holders, true);
  std::vector<Tensor> pieces;
  if (spec.mesh.coordinate()) pieces.push_back(current_local(*meta));
  return wrap_sharded(layout, std::move(pieces), tensor.scalar_type());
}

bool run_as_dtensors(const c10::OperatorHandle& op, const OpInfo& info, Stack& stack) {
  return DTensorCall(op, info, stack).run();
}

}  // namespace sherd::detail
