#include <map>

#include "checkpoint/state_paths.h"
#include "comm/answers.h"
#include "comm/errors.h"
#include "sharded/bytes.h"
#include "sherd/collectives.h"
#include "sherd/sharded_tensor.h"
#include "tensor/boxes_meta.h"

namespace sherd {
namespace {

using at::Tensor;
using sharded::ShardMetadata;

constexpr const char* kOperation = "flatten_sharded_tensors";

struct Slot {
  std::string name;
  StateValue* value;
};

// Where the state has ShardedTensors. It is the caller's own; Statefuls in it become dicts.
void find_tensors(StateValue& value, StatePath& path, std::vector<Slot>& slots);

void find_tensors(StateDict& dict, StatePath& path, std::vector<Slot>& slots) {
  for (auto& [key, value] : dict) {
    path.push_back(key);
    find_tensors(value, path, slots);
    path.pop_back();
  }
}

void find_tensors(StateValue& value, StatePath& path, std::vector<Slot>& slots) {
  if (value.stateful() != nullptr) value = value.stateful()->state_dict().clone();
  if (value.dict() != nullptr) return find_tensors(*value.dict(), path, slots);
  if (value.tensor() != nullptr && sharded::is_sharded_tensor(*value.tensor())) {
    slots.push_back({detail::quoted(path), &value});
  }
  std::vector<StateValue>* items = value.list();
  if (value.tuple() != nullptr) items = &value.tuple()->items;
  if (items == nullptr) return;
  for (size_t i = 0; i < items->size(); ++i) {
    path.emplace_back(static_cast<int64_t>(i));
    find_tensors((*items)[i], path, slots);
    path.pop_back();
  }
}

bool is_nested(const Tensor& tensor) {
  for (const Tensor& piece : detail::boxes_of(tensor)->pieces) {
    if (detail::boxes_of(piece) != nullptr) return true;
  }
  return false;
}

// This rank's pieces, however deep.
std::vector<sharded::Shard> leaf_shards(const Tensor& tensor, int64_t rank) {
  std::vector<sharded::Shard> shards;
  for (const WriteItem& item : checkpointable(tensor)->write_items("")) {
    shards.push_back(sharded::Shard::from_tensor_and_offsets(item.tensor, item.chunk.offsets, rank));
  }
  return shards;
}

std::string to_bytes(const std::vector<Slot>& slots, int64_t rank) {
  detail::ByteWriter out;
  for (const Slot& slot : slots) {
    const Tensor& tensor = *slot.value->tensor();
    out.put_text(slot.name);
    out.put(is_nested(tensor));
    const std::vector<sharded::Shard> shards = leaf_shards(tensor, rank);
    out.put(static_cast<uint64_t>(shards.size()));
    for (const sharded::Shard& shard : shards) {
      out.put_dims(shard.metadata.shard_offsets);
      out.put_dims(shard.metadata.shard_sizes);
      out.put_text(to_string(*shard.metadata.placement));
    }
  }
  return out.take();
}

// What all ranks have of one tensor.
struct Flat {
  bool nested = false;
  std::vector<int64_t> ranks = {};
  std::vector<ShardMetadata> shards = {};
};

void read_bytes(const std::string& bytes, int64_t rank, std::map<std::string, Flat>& tensors) {
  detail::ByteReader in(kOperation, bytes);
  while (in.left() > 0) {
    Flat& flat = tensors[in.get_text()];
    flat.nested = in.get<bool>() || flat.nested;
    flat.ranks.push_back(rank);
    const auto count = in.get<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      Dims offsets = in.get_dims();
      Dims sizes = in.get_dims();
      flat.shards.emplace_back(std::move(offsets), std::move(sizes), sharded::RemoteDevice(in.get_text()));
    }
  }
}

Tensor flat_tensor(const std::string& name, const Tensor& tensor, const Flat& flat, int64_t rank) {
  sharded::ShardedTensorMetadata metadata = sharded::ShardedTensor(tensor).metadata();
  metadata.shards_metadata = flat.shards;
  metadata.tensor_properties.requires_grad = false;
  sharded::GroupOptions options;
  options.ranks = flat.ranks;
  try {
    return sharded::ShardedTensor::init_from_local_shards_and_global_metadata(leaf_shards(tensor, rank), metadata,
                                                                              options);
  } catch (const c10::ValueError& error) {
    detail::throw_value_error(ErrorText(kOperation, "the shards of all ranks do not make one tensor")
                                  .fact("name", name)
                                  .fact("because", error.what_without_backtrace())
                                  .help("call it on the group of all ranks that hold the tensor"));
  }
}

}  // namespace

StateDict flatten_sharded_tensors(const StateDict& state, const std::optional<Group>& group) {
  const World world = current_world();
  const Group all = group.value_or(world.group());
  StateDict result = state.clone();
  std::vector<Slot> slots;
  const std::vector<std::string> told = detail::answers_of_all(all, kOperation, [&] {
    StatePath path;
    find_tensors(result, path, slots);
    return to_bytes(slots, world.rank());
  });
  std::map<std::string, Flat> tensors;
  for (size_t i = 0; i < told.size(); ++i) read_bytes(told[i], all.ranks()[i], tensors);
  agree(all, kOperation, [&] {
    for (const Slot& slot : slots) {
      const Flat& flat = tensors.at(slot.name);
      if (flat.nested) *slot.value = flat_tensor(slot.name, *slot.value->tensor(), flat, world.rank());
    }
  });
  return result;
}

}  // namespace sherd
