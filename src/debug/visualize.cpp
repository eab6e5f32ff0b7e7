#include "sherd/visualize.h"

#include <algorithm>
#include <cstdio>
#include <variant>

#include "comm/errors.h"
#include "picture/terminal_color.h"
#include "sherd/checkpointable.h"
#include "sherd/dtensor.h"
#include "sherd/local_shards.h"
#include "sherd/sharded_tensor.h"
#include "tensor/meta.h"

namespace sherd {
namespace {

std::string holder_of(const sharded::ShardMetadata& shard) {
  if (!shard.placement) return "?";
  if (shard.placement->rank) return std::to_string(*shard.placement->rank);
  return shard.placement->worker.empty() ? "here" : shard.placement->worker;
}

BoxPicture sharded_picture(const at::Tensor& tensor) {
  const sharded::ShardedTensorMetadata metadata = sharded::ShardedTensorBase(tensor).metadata();
  BoxPicture picture{.shape = metadata.size};
  picture.caption = "ShardedTensor " + to_string(tensor) + " in " + std::to_string(metadata.shards_metadata.size()) +
                    (metadata.shards_metadata.size() == 1 ? " shard" : " shards");
  for (const auto& shard : metadata.shards_metadata) {
    picture.parts.push_back({holder_of(shard), shard.box()});
    if (!shard.placement || !shard.placement->rank) picture.holders_are_ranks = false;
  }
  return picture;
}

// The boxes of one rank: those of others are not known here.
BoxPicture own_boxes(std::string caption, Dims shape, const std::vector<ChunkMetadata>& chunks) {
  BoxPicture picture{.caption = std::move(caption), .shape = std::move(shape), .holders_are_ranks = false};
  for (const ChunkMetadata& chunk : chunks) picture.parts.push_back({"here", chunk.box()});
  picture.notes = {chunks.empty() ? "this rank holds nothing" : "drawn are this rank's boxes alone"};
  return picture;
}

BoxPicture wrapper_picture(const at::Tensor& tensor) {
  const LocalShardsWrapper wrapper(tensor);
  Dims shape = wrapper.storage_metadata().size;
  // Where the size of the whole is not known, as much of it as these shards tell.
  for (const ChunkMetadata& chunk : wrapper.local_chunks())
    for (size_t d = 0; d < shape.size(); ++d) shape[d] = std::max(shape[d], chunk.offsets[d] + chunk.sizes[d]);
  return own_boxes(to_string(wrapper), std::move(shape), wrapper.local_chunks());
}

// What is drawn, and the lines that are said of this rank.
struct Subject {
  std::variant<Layout, BoxPicture> what;
  std::vector<std::string> notes = {};
};

Subject subject_of(const at::Tensor& tensor) {
  if (!tensor.defined())
    detail::throw_value_error(ErrorText("visualize_sharding", "the tensor is undefined")
                                  .help("a parameter's gradient is undefined before the first backward()"));
  if (is_dtensor(tensor)) {
    const DeviceMesh mesh = mesh_of(tensor);
    std::vector<std::string> notes;
    if (!mesh.coordinate())
      notes.push_back("this rank, " + std::to_string(mesh.world().rank()) + ", is not in the mesh: it holds nothing");
    if (!detail::meta_of(tensor)->spec->boxes) return {layout_of(tensor), std::move(notes)};
    auto chunks = mesh.coordinate() ? checkpointable(tensor)->chunk_list() : std::vector<ChunkMetadata>();
    return {own_boxes(to_string(tensor), tensor.sizes().vec(), chunks), std::move(notes)};
  }
  if (sharded::is_sharded_tensor(tensor)) return {sharded_picture(tensor)};
  if (is_local_shards(tensor)) return {wrapper_picture(tensor)};
  const Dims shape = tensor.sizes().vec();
  return {BoxPicture{.caption = to_string(tensor) + ", not distributed",
                     .shape = shape,
                     .parts = {{"all", {Dims(shape.size(), 0), shape}}},
                     .holders_are_ranks = false}};
}

}  // namespace

std::string visualize(const at::Tensor& tensor) { return draw_text(layout_of(tensor)); }

std::string visualize_sharding(const at::Tensor& tensor, const VisualizeOptions& options) {
  const Subject subject = subject_of(tensor);
  const TextOptions look{.color = options.color ? *options.color : detail::has_color(stdout),
                         .max_width = options.max_width,
                         .max_rows = options.max_rows,
                         .legend = options.legend,
                         .notes = subject.notes};
  return std::visit([&](const auto& what) { return draw_text(what, look); }, subject.what);
}

std::string visualize_sharding_svg(const at::Tensor& tensor, const SvgOptions& options) {
  const Subject subject = subject_of(tensor);
  SvgOptions look = options;
  look.notes.insert(look.notes.end(), subject.notes.begin(), subject.notes.end());
  return std::visit([&](const auto& what) { return draw_svg(what, look); }, subject.what);
}

std::string visualize_sharding_html(const at::Tensor& tensor, const SvgOptions& options) {
  const std::vector<TitledSvg> one = {{to_string(tensor), visualize_sharding_svg(tensor, options)}};
  return draw_html(one);
}

}  // namespace sherd
