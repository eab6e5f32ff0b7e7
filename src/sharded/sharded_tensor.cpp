#include "sherd/sharded_tensor.h"

#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "comm/call.h"
#include "comm/errors.h"
#include "comm/rank_list.h"
#include "sharded/layout.h"
#include "sharded/remote_shards.h"
#include "sharded/shard_checks.h"

namespace sherd::sharded {
namespace {

using at::Tensor;
using detail::boxes_of;
using detail::Holders;
using detail::require_sharded;
using detail::ShardedLayout;
using detail::ShardedLayoutPtr;

ShardedLayoutPtr with_flags(const ShardedLayoutPtr& layout, bool pin_memory) {
  if (!pin_memory) return layout;
  auto pinned = std::make_shared<ShardedLayout>(*layout);
  pinned->pin_memory = true;
  return pinned;
}

void check_options(const ShardedTensorOptions& options) {
  const auto refuse = [](const char* why, const std::string& given, const char* help) {
    detail::throw_value_error(ErrorText("ShardedTensor", why).fact("given", given).help(help));
  };
  if (options.layout != c10::kStrided) {
    refuse("only strided tensors can be sharded", c10::str(options.layout), ".layout = torch::kStrided");
  }
  if (options.memory_format != c10::MemoryFormat::Contiguous) {
    refuse("only contiguous memory", c10::str(options.memory_format),
           ".memory_format = torch::MemoryFormat::Contiguous");
  }
}

Tensor allocate(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options) {
  check_options(options);
  const Holders holders = detail::holders_of(options);
  const auto layout = with_flags(detail::make_layout("ShardedTensor", spec, size, holders), options.pin_memory);
  const auto dtype = options.dtype.value_or(c10::get_default_dtype_as_scalartype());
  std::vector<Tensor> pieces;
  for (size_t i = 0; i < layout->boxes.size(); ++i) {
    const auto where = at::TensorOptions(dtype).device(layout->metadata(i).placement->device);
    pieces.push_back(at::empty(layout->boxes[i].size, where.pinned_memory(options.pin_memory)));
    pieces.back().requires_grad_(options.requires_grad);
  }
  Tensor result = detail::wrap_sharded(layout, std::move(pieces), dtype);
  result.requires_grad_(options.requires_grad);
  return result;
}

// The shards in the order of the layout's pieces, each compared with what the metadata say of it.
std::vector<Tensor> match_pieces(const char* operation, const ShardedLayout& layout, const std::vector<Shard>& shards,
                                 const TensorProperties& properties) {
  if (shards.size() != layout.boxes.size()) {
    detail::throw_error(ErrorText(operation, "another number of local shards than the metadata have for this rank")
                            .fact("local shards", std::to_string(shards.size()))
                            .fact("metadata", fmt::format("{} for rank {}", layout.boxes.size(), layout.holders.rank()))
                            .help("one Shard per entry of the metadata with this rank's placement"));
  }
  std::unordered_multimap<ShardMetadata, size_t> places;  // several empty shards may lie on one spot
  for (size_t i = 0; i < layout.boxes.size(); ++i) {
    places.emplace(ShardMetadata(layout.boxes[i].offset, layout.boxes[i].size), i);
  }
  std::vector<Tensor> pieces(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardMetadata& given = shards[i].metadata;
    const auto found = places.find(ShardMetadata(given.shard_offsets, given.shard_sizes));
    if (found == places.end()) {
      detail::throw_value_error(
          ErrorText(operation, fmt::format("local shard {} is not in the metadata of this rank", i))
              .fact("local shard", to_string(given))
              .fact("metadata", layout.boxes.empty() ? "nothing" : to_string(layout.metadata(i)))
              .help("the same offsets and sizes in the shard and in the metadata"));
    }
    detail::check_shard(operation, i, shards[i], properties, layout.metadata(found->second));
    pieces[found->second] = shards[i].tensor;
    places.erase(found);
  }
  return pieces;
}

// A spec that was given must say what the metadata say.
ShardingSpec spec_for(const char* operation, const ShardedTensorMetadata& metadata,
                      const std::optional<ShardingSpec>& given) {
  if (metadata.shards_metadata.empty()) {
    detail::throw_value_error(ErrorText(operation, "the metadata have no shards")
                                  .fact("size", sherd::to_string(metadata.size))
                                  .help("ShardedTensorMetadata{.shards_metadata = of all ranks, ...}"));
  }
  if (metadata.tensor_properties.layout != c10::kStrided) {
    detail::throw_value_error(ErrorText(operation, "only strided tensors can be sharded")
                                  .fact("layout", c10::str(metadata.tensor_properties.layout))
                                  .help("tensor_properties.layout = torch::kStrided"));
  }
  check_tensor(metadata.shards_metadata, metadata.size);
  if (!given) return infer_sharding_spec(metadata.shards_metadata, metadata.size);
  const auto wanted = given->build_metadata(metadata.size).shards_metadata;
  const auto look = [&](const std::vector<ShardMetadata>& some, const std::vector<ShardMetadata>& others,
                        const char* where) {
    const std::unordered_set<ShardMetadata> known(others.begin(), others.end());
    for (const ShardMetadata& shard : some) {
      if (known.contains(shard)) continue;
      detail::throw_value_error(ErrorText(operation, "the spec does not give the shards of the metadata")
                                    .fact(where, to_string(shard))
                                    .fact("spec", to_string(*given))
                                    .help("leave the spec out: it is inferred"));
    }
  };
  look(metadata.shards_metadata, wanted, "only in the metadata");
  look(wanted, metadata.shards_metadata, "only in the spec");
  return *given;
}

Tensor of_shards(const char* operation, const std::vector<Shard>& shards, const ShardedTensorMetadata& metadata,
                 const Holders& holders, const std::optional<ShardingSpec>& spec) {
  auto layout =
      with_flags(detail::make_layout(operation, spec_for(operation, metadata, spec), metadata.size, holders, true),
                 metadata.tensor_properties.pin_memory);
  const TensorProperties& properties = metadata.tensor_properties;
  Tensor result = detail::wrap_sharded(layout, match_pieces(operation, *layout, shards, properties), properties.dtype);
  result.requires_grad_(properties.requires_grad);
  return result;
}

}  // namespace

bool is_sharded_tensor(const Tensor& tensor) { return detail::sharded_layout(tensor) != nullptr; }

Shard::Shard(Tensor data, ShardMetadata where) : tensor(std::move(data)), metadata(std::move(where)) {
  if (!tensor.defined()) {
    detail::throw_value_error(ErrorText("Shard", "no tensor").fact("shard", to_string(metadata)).help("a tensor"));
  }
  if (tensor.sizes() != at::IntArrayRef(metadata.shard_sizes)) {
    detail::throw_value_error(ErrorText("Shard", "the tensor's size is not the shard's")
                                  .fact("tensor", sherd::to_string(tensor.sizes().vec()))
                                  .fact("shard", to_string(metadata))
                                  .help("Shard::from_tensor_and_offsets(tensor, offsets, rank)"));
  }
  if (metadata.placement && metadata.placement->device != tensor.device()) {
    detail::throw_value_error(ErrorText("Shard", "the tensor is on another device than the placement says")
                                  .fact("tensor", tensor.device().str())
                                  .fact("placement", to_string(*metadata.placement))
                                  .help("tensor.to(device)"));
  }
}

Shard Shard::from_tensor_and_offsets(const Tensor& tensor, const Dims& offsets, int64_t rank) {
  return {tensor, ShardMetadata(offsets, tensor.sizes().vec(), RemoteDevice(rank, tensor.device()))};
}

ShardedTensorBase::ShardedTensorBase(const Tensor& tensor) : Tensor(tensor) {
  require_sharded("ShardedTensor", tensor);
}

ShardedTensorBase ShardedTensorBase::init_from_local_shards_and_global_metadata(
    std::vector<Shard> shards, const ShardedTensorMetadata& metadata, const std::optional<ShardingSpec>& spec) {
  constexpr const char* kOperation = "init_from_local_shards_and_global_metadata";
  auto layout = std::make_shared<ShardedLayout>(
      *detail::make_layout(kOperation, spec_for(kOperation, metadata, spec), metadata.size, Holders(), true));
  layout->pin_memory = metadata.tensor_properties.pin_memory;
  std::unordered_map<ShardMetadata, size_t> places;
  for (size_t i = 0; i < layout->spec.kind().count(); ++i) {
    const ShardMetadata shard = layout->spec.kind().shard(metadata.size, i);
    places[ShardMetadata(shard.shard_offsets, shard.shard_sizes)] = i;
  }
  std::vector<Tensor> pieces;
  for (const Shard& shard : shards) {
    const auto found = places.find(ShardMetadata(shard.metadata.shard_offsets, shard.metadata.shard_sizes));
    if (found == places.end()) {
      detail::throw_value_error(ErrorText(kOperation, "a local shard is not in the metadata")
                                    .fact("local shard", to_string(shard.metadata))
                                    .help("the same offsets and sizes in the shard and in the metadata"));
    }
    layout->indices.push_back(found->second);
    layout->boxes.push_back(shard.metadata.box());
    pieces.push_back(shard.tensor);
  }
  if (!pieces.empty()) layout->device = pieces.front().device();
  Tensor result = detail::wrap_sharded(layout, std::move(pieces), metadata.tensor_properties.dtype);
  result.requires_grad_(metadata.tensor_properties.requires_grad);
  return ShardedTensorBase(result);
}

ShardedTensorMetadata ShardedTensorBase::metadata() const {
  const ShardedLayout& layout = require_sharded("metadata", *this);
  TensorProperties properties(scalar_type());
  properties.requires_grad = requires_grad();
  properties.pin_memory = layout.pin_memory;
  return layout.spec.build_metadata(layout.size, properties);
}

std::vector<Shard> ShardedTensorBase::local_shards() const {
  const ShardedLayout& layout = require_sharded("local_shards", *this);
  const auto& pieces = boxes_of(*this)->pieces;
  std::vector<Shard> shards;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ShardMetadata metadata = layout.metadata(i);
    // A placement may leave open which of this rank's devices it is.
    if (metadata.placement) metadata.placement->device = pieces[i].device();
    shards.emplace_back(pieces[i], std::move(metadata));
  }
  return shards;
}

const ShardingSpec& ShardedTensorBase::sharding_spec() const { return require_sharded("sharding_spec", *this).spec; }

bool ShardedTensorBase::is_pinned() const { return require_sharded("is_pinned", *this).pin_memory; }

ShardedTensor::ShardedTensor(const Tensor& tensor) : ShardedTensorBase(tensor) {
  detail::require_group("ShardedTensor", tensor);
}

ShardedTensor::ShardedTensor(const ShardingSpec& spec, const Dims& size, const ShardedTensorOptions& options)
    : ShardedTensorBase(allocate(spec, size, options)) {
  if (options.init_rrefs) detail::register_remote_shards(*this);
}

ShardedTensor ShardedTensor::init_from_local_shards_and_global_metadata(std::vector<Shard> shards,
                                                                        const ShardedTensorMetadata& metadata,
                                                                        const GroupOptions& options,
                                                                        const std::optional<ShardingSpec>& spec) {
  return ShardedTensor(
      of_shards("init_from_local_shards_and_global_metadata", shards, metadata, detail::holders_of(options), spec));
}

Tensor ShardedTensor::local_tensor() const {
  const auto& pieces = boxes_of(*this)->pieces;
  if (pieces.size() == 1) return pieces.front();
  throw c10::NotImplementedError(ErrorText("local_tensor", "only for a rank with exactly one local shard")
                                     .fact("local shards", std::to_string(pieces.size()))
                                     .help("local_shards()[i].tensor")
                                     .str());
}

const std::optional<Group>& ShardedTensor::group() const { return require_sharded("group", *this).holders.group(); }

const std::vector<int64_t>& ShardedTensor::ranks() const { return require_sharded("ranks", *this).holders.ranks(); }

c10::Device ShardedTensor::device_of_group() const { return require_sharded("device_of_group", *this).device; }

ShardedTensor init_from_local_tensor(const Tensor& local, const ShardingSpec& spec, const Dims& size,
                                     const GroupOptions& options) {
  constexpr const char* kOperation = "init_from_local_tensor";
  const Holders holders = detail::holders_of(options);
  const auto layout = detail::make_layout(kOperation, spec, size, holders);
  std::vector<Tensor> pieces;
  if (layout->boxes.size() > 1) {
    detail::throw_value_error(ErrorText(kOperation, "the spec gives this rank several shards")
                                  .fact("shards", std::to_string(layout->boxes.size()))
                                  .help("init_from_local_shards(shards, size)"));
  }
  if (layout->boxes.size() == 1) {
    detail::check_shard(kOperation, 0, Shard(local, {layout->boxes[0].offset, layout->boxes[0].size}),
                        TensorProperties::create_from_tensor(local), layout->metadata(0));
    pieces.push_back(local);
  }
  Tensor result = detail::wrap_sharded(layout, std::move(pieces), local.scalar_type());
  result.requires_grad_(local.requires_grad());
  if (options.init_rrefs) detail::register_remote_shards(result);
  return ShardedTensor(result);
}

std::string to_string(const ShardedTensor& tensor) {
  const ShardedLayout& layout = require_sharded("to_string", tensor);
  std::string text = fmt::format("ShardedTensor {}{} in {} shards", detail::dtype_name(tensor.scalar_type()),
                                 sherd::to_string(layout.size), layout.spec.kind().count());
  if (layout.holders.world()) text += " over ranks " + detail::rank_list(layout.holders.ranks());
  text += ", here ";
  if (layout.boxes.empty()) text += "nothing";
  for (size_t i = 0; i < layout.boxes.size(); ++i) text += (i == 0 ? "" : ", ") + to_string(layout.metadata(i));
  return text;
}

}  // namespace sherd::sharded
