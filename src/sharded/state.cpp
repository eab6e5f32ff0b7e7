// One rank's part of a ShardedTensor as a value and as bytes, and tensors made of such parts again.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "comm/errors.h"
#include "sharded/bytes.h"
#include "sharded/layout.h"
#include "sharded/moves.h"
#include "sharded/remote_shards.h"
#include "sherd/collectives.h"

namespace sherd::sharded {
namespace {

using at::Tensor;
using detail::ByteReader;
using detail::ByteWriter;
using detail::Holders;

constexpr std::string_view kMagic = "sherd ShardedTensor 1\n";

void put(ByteWriter& out, const ShardMetadata& shard) {
  out.put_dims(shard.shard_offsets);
  out.put_dims(shard.shard_sizes);
  out.put_text(shard.placement ? to_string(*shard.placement) : "");
}

ShardMetadata get_shard(ByteReader& in) {
  Dims offsets = in.get_dims();
  Dims sizes = in.get_dims();
  const std::string placement = in.get_text();
  return {std::move(offsets), std::move(sizes),
          placement.empty() ? std::optional<RemoteDevice>() : RemoteDevice(placement)};
}

void put(ByteWriter& out, const TensorProperties& properties) {
  const auto [dtype, layout, requires_grad, format, pin_memory] = properties.to_tuple();
  out.put(static_cast<int32_t>(dtype));
  out.put(static_cast<int32_t>(layout));
  out.put(requires_grad);
  out.put(format);
  out.put(pin_memory);
}

TensorProperties get_properties(ByteReader& in) {
  const auto dtype = static_cast<c10::ScalarType>(in.get<int32_t>());
  const auto layout = static_cast<c10::Layout>(in.get<int32_t>());
  const bool requires_grad = in.get<uint8_t>() != 0;
  const auto format = in.get<int>();
  const bool pin_memory = in.get<uint8_t>() != 0;
  if (dtype < c10::ScalarType::Byte || dtype >= c10::ScalarType::NumOptions) {
    detail::throw_value_error(ErrorText("load_state", "unknown dtype")
                                  .fact("number", std::to_string(static_cast<int>(dtype)))
                                  .help("bytes of save()"));
  }
  return TensorProperties::from_tuple({dtype, layout, requires_grad, format, pin_memory});
}

ShardingSpec spec_of(const ShardedTensorMetadata& metadata) {
  return infer_sharding_spec(metadata.shards_metadata, metadata.size);
}

void require_same(const char* what, int64_t state, int64_t here) {
  if (state == here) return;
  detail::throw_error(ErrorText("from_state", fmt::format("the {} is not that of the state", what))
                          .fact("state", std::to_string(state))
                          .fact("here", std::to_string(here))
                          .help("ShardedTensor::rebuild(states, spec) for another world"));
}

}  // namespace

ShardedTensorState ShardedTensor::state() const {
  const detail::ShardedLayout& layout = detail::require_group("state", *this);
  ShardedTensorState state{local_shards(), metadata(), layout.spec};
  state.local_rank = layout.holders.group() ? layout.holders.group()->rank() : -1;
  state.global_rank = layout.holders.rank();
  state.local_world_size = static_cast<int64_t>(layout.holders.ranks().size());
  state.global_world_size = layout.holders.world()->size();
  state.init_rrefs = detail::has_remote_shards(*this);
  return state;
}

ShardedTensor ShardedTensor::from_state(const ShardedTensorState& state, const GroupOptions& options) {
  const Holders holders = detail::holders_of(options);
  require_same("rank in the group", state.local_rank, holders.group() ? holders.group()->rank() : -1);
  require_same("size of the group", state.local_world_size, static_cast<int64_t>(holders.ranks().size()));
  require_same("rank in the world", state.global_rank, holders.rank());
  require_same("size of the world", state.global_world_size, holders.world()->size());
  GroupOptions here = options;
  here.init_rrefs = state.init_rrefs;
  return init_from_local_shards_and_global_metadata(state.local_shards, state.metadata, here, state.sharding_spec);
}

ShardedTensor ShardedTensor::rebuild(const std::vector<ShardedTensorState>& states, const ShardingSpec& spec,
                                     const GroupOptions& options) {
  // Each rank has some of the old ranks' parts: they are its shards of a tensor that is cut anew.
  const int64_t rank = detail::holders_of(options).rank();
  std::vector<Shard> shards;
  Dims size;
  for (const ShardedTensorState& state : states) {
    size = state.metadata.size;
    for (const Shard& shard : state.local_shards) {
      const Tensor data = shard.tensor.detach();
      shards.push_back(Shard::from_tensor_and_offsets(data, shard.metadata.shard_offsets, rank));
    }
  }
  // A rank without a part learns the size from the others.
  const Holders holders = detail::holders_of(options);
  bool requires_grad = !states.empty() && states.front().metadata.tensor_properties.requires_grad;
  if (holders.group()) {
    const auto texts =
        all_gather_text(*holders.group(), states.empty() ? "" : (requires_grad ? "g" : "-") + sherd::to_string(size));
    const auto found = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
    if (found == texts.end()) {
      detail::throw_value_error(ErrorText("rebuild", "no rank has a part of the tensor")
                                    .fact("states", "0 on every rank")
                                    .help("load the parts of all old ranks, each on some rank"));
    }
    if (states.empty()) {
      requires_grad = found->front() == 'g';
      size = parse_dims(std::string_view(*found).substr(1));
    }
  }
  GroupOptions plain = options;
  plain.init_rrefs = false;
  Tensor result = init_from_local_shards(std::move(shards), size, plain).reshard(spec);
  result.requires_grad_(requires_grad);
  for (const Tensor& piece : detail::boxes_of(result)->pieces) piece.requires_grad_(requires_grad);
  if (options.init_rrefs) detail::register_remote_shards(result);
  return ShardedTensor(result);
}

std::vector<char> save(const ShardedTensor& tensor) {
  const ShardedTensorState state = tensor.state();
  ByteWriter out;
  out.put_text(kMagic);
  out.put_dims(
      {state.local_rank, state.global_rank, state.local_world_size, state.global_world_size, state.init_rrefs ? 1 : 0});
  out.put_dims(state.metadata.size);
  put(out, state.metadata.tensor_properties);
  out.put(static_cast<uint64_t>(state.metadata.shards_metadata.size()));
  for (const ShardMetadata& shard : state.metadata.shards_metadata) put(out, shard);
  out.put(static_cast<uint64_t>(state.local_shards.size()));
  for (const Shard& shard : state.local_shards) {
    put(out, shard.metadata);
    const Tensor data = shard.tensor.detach().to(c10::kCPU).resolve_conj().resolve_neg().contiguous();
    out.put_text({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  const std::string bytes = out.take();
  return {bytes.begin(), bytes.end()};
}

ShardedTensorState load_state(const std::vector<char>& bytes) {
  constexpr const char* kOperation = "load_state";
  ByteReader in(kOperation, {bytes.data(), bytes.size()});
  if (in.get_text() != kMagic) {
    detail::throw_value_error(ErrorText(kOperation, "these bytes are no ShardedTensor")
                                  .fact("bytes", std::to_string(bytes.size()))
                                  .help("bytes of sherd::sharded::save(tensor)"));
  }
  const Dims place = in.get_dims();
  ShardedTensorMetadata metadata;
  metadata.size = in.get_dims();
  metadata.tensor_properties = get_properties(in);
  const auto count = in.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) metadata.shards_metadata.push_back(get_shard(in));
  std::vector<Shard> shards;
  const auto here = in.get<uint64_t>();
  for (uint64_t i = 0; i < here; ++i) {
    const ShardMetadata shard = get_shard(in);
    const std::string_view data = in.bytes(in.get<uint64_t>());
    Tensor tensor = at::empty(shard.shard_sizes, at::TensorOptions(metadata.tensor_properties.dtype));
    if (data.size() != tensor.nbytes() || place.size() != 5) {
      detail::throw_value_error(ErrorText(kOperation, "a shard has another number of bytes than its size says")
                                    .fact("shard", to_string(shard))
                                    .fact("bytes", std::to_string(data.size()))
                                    .help("bytes of sherd::sharded::save(tensor)"));
    }
    if (!data.empty()) std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
    if (shard.placement) tensor = tensor.to(shard.placement->device);
    tensor.requires_grad_(metadata.tensor_properties.requires_grad);
    shards.emplace_back(tensor, shard);
  }
  ShardingSpec spec = spec_of(metadata);
  ShardedTensorState state{std::move(shards), std::move(metadata), std::move(spec)};
  state.local_rank = place[0];
  state.global_rank = place[1];
  state.local_world_size = place[2];
  state.global_world_size = place[3];
  state.init_rrefs = place[4] != 0;
  return state;
}

ShardedTensor load(const std::vector<char>& bytes, const GroupOptions& options) {
  return ShardedTensor::from_state(load_state(bytes), options);
}

}  // namespace sherd::sharded
