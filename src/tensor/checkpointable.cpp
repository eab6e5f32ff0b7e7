#include "sherd/checkpointable.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/errors.h"
#include "tensor/chunk_table.h"
#include "tensor/held_boxes.h"
#include "tensor/own_memory.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::BoxesMeta;
using detail::DTensorMeta;

constexpr const char* kOperation = "checkpointable";

// The chunks of one tensor on this rank, however it is held.
class HeldChunks final : public Checkpointable {
 public:
  explicit HeldChunks(const Tensor& tensor) : requires_grad_(tensor.requires_grad()) {}

  void add(const Box& box, const Tensor& data) {
    chunks_.push_back({box.offset, box.size});
    tensors_.push_back(data.detach());
  }
  void finish(std::optional<Dims> size, Copies copies = {}) {
    size_ = std::move(size);
    copies_ = std::move(copies);
    table_ = detail::ChunkTable(chunks_);
  }

  std::vector<ChunkMetadata> chunk_list() const override {
    std::vector<ChunkMetadata> list;
    for (const ChunkMetadata& chunk : chunks_) {
      if (is_listed(chunk)) list.push_back(chunk);
    }
    return list;
  }

  Tensor shard(const ShardIndex& index) const override { return tensors_[table_.find(index, chunks_, size_)]; }

  Dims global_size() const override {
    if (size_) return *size_;
    detail::throw_value_error(
        ErrorText(kOperation, "the size of the whole tensor is not known")
            .fact("chunks here", detail::text_of(chunks_))
            .help("LocalShardsOptions{.global_size = {...}}, or sherd::from_local(wrapper, ...)"));
  }

  Copies copies() const override { return copies_; }

 protected:
  std::vector<WriteItem> held_items(const std::string& name) const override {
    const Dims size = global_size();
    std::vector<WriteItem> items;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (!is_listed(chunks_[i])) continue;
      auto properties = TensorProperties::create_from_tensor(tensors_[i]);
      properties.requires_grad = requires_grad_;
      items.push_back({name, chunks_[i], size, properties, tensors_[i]});
    }
    return items;
  }

 private:
  // Of a tensor without elements one chunk is kept, so that it is known.
  bool is_listed(const ChunkMetadata& chunk) const { return numel(chunk.sizes) > 0 || (size_ && numel(*size_) == 0); }

  bool requires_grad_;
  std::vector<ChunkMetadata> chunks_;
  std::vector<Tensor> tensors_;
  std::optional<Dims> size_;
  Copies copies_;
  detail::ChunkTable table_;
};

// The ranks along the axes that replicate a tensor.
Copies copies_of(const detail::Spec& spec) {
  Copies copies;
  if (!spec.mesh.coordinate()) return copies;
  const Dims& here = *spec.mesh.coordinate();
  const Mesh& mesh = spec.mesh.mesh();
  for (int64_t i = 0; i < mesh.size(); ++i) {
    const Dims there = mesh.coordinate_at(i);
    bool same = true;
    for (size_t axis = 0; axis < here.size(); ++axis) {
      same = same && (is_replicate(spec.placements[axis]) || there[axis] == here[axis]);
    }
    if (!same) continue;
    if (there == here) copies.number = static_cast<int64_t>(copies.ranks.size());
    copies.ranks.push_back(mesh.rank_at(there));
  }
  return copies;
}

// Pieces may lie in pieces themselves.
void add_pieces(HeldChunks& chunks, const std::vector<Box>& boxes, const std::vector<Tensor>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const BoxesMeta* inner = detail::boxes_of(pieces[i]);
    if (inner == nullptr) {
      chunks.add(boxes[i], pieces[i]);
      continue;
    }
    std::vector<Box> places = inner->layout->boxes;
    for (Box& place : places) {
      for (size_t d = 0; d < place.offset.size(); ++d) place.offset[d] += boxes[i].offset[d];
    }
    add_pieces(chunks, places, inner->pieces);
  }
}

void add_parts(HeldChunks& chunks, DTensorMeta& meta) {
  const detail::Spec& spec = *meta.spec;
  if (!spec.mesh.coordinate()) return;
  const Dims& here = *spec.mesh.coordinate();
  const Tensor local = detail::current_local(meta);
  if (numel(spec.sizes) == 0) {
    const bool first = std::all_of(here.begin(), here.end(), [](int64_t at) { return at == 0; });
    if (first) chunks.add({Dims(spec.sizes.size(), 0), spec.sizes}, at::empty(spec.sizes, local.options()));
    return;
  }
  const Layout layout = spec.layout();
  for (const Box& box : local_boxes(layout, here)) {
    Box inside = box;
    for (size_t d = 0; d < box.offset.size(); ++d) {
      inside.offset[d] = holder_of(layout, static_cast<int64_t>(d), box.offset[d]).local_row;
    }
    // Most tensors have one box on a rank: all of what it holds.
    const bool whole = inside.size == local.sizes();
    chunks.add(box, whole ? local : detail::part_of(local.detach(), inside));
  }
}

void check(const Tensor& tensor, const DTensorMeta& meta) {
  if (meta.spec->has_partial) {
    detail::throw_value_error(ErrorText(kOperation, "a Partial tensor has no value yet that could be kept")
                                  .fact("tensor", detail::describe(*meta.spec, tensor.scalar_type()))
                                  .help("sherd::redistribute(tensor, {sherd::Replicate()}) first"));
  }
  if (meta.origin) {
    detail::throw_value_error(ErrorText(kOperation, "the tensor is a view that had to be copied")
                                  .fact("tensor", detail::describe(*meta.spec, tensor.scalar_type()))
                                  .help("the tensor that it is a view of, or tensor.clone()"));
  }
}

}  // namespace

std::unique_ptr<Checkpointable> checkpointable(const Tensor& tensor) {
  detail::require_dense(kOperation, tensor);
  detail::require_memory(kOperation, tensor);
  auto chunks = std::make_unique<HeldChunks>(tensor);
  if (DTensorMeta* meta = detail::meta_of(tensor)) {
    check(tensor, *meta);
    if (meta->spec->boxes) {
      add_pieces(*chunks, meta->spec->boxes->boxes, detail::boxes_of(meta->local)->pieces);
    } else {
      add_parts(*chunks, *meta);
    }
    chunks->finish(meta->spec->sizes, copies_of(*meta->spec));
  } else if (const BoxesMeta* boxes = detail::boxes_of(tensor)) {
    const auto& outer = boxes->layout->outer;
    add_pieces(*chunks, outer ? outer->boxes : boxes->layout->boxes, boxes->pieces);
    chunks->finish(outer ? outer->size : std::optional(boxes->layout->size));
  } else {
    const Dims size = tensor.sizes().vec();
    chunks->add({Dims(size.size(), 0), size}, tensor);
    chunks->finish(size);
  }
  return chunks;
}

}  // namespace sherd
