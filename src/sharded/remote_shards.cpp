#include "sharded/remote_shards.h"

#include "comm/errors.h"
#include "sharded/layout.h"
#include "sherd/rpc.h"

namespace sherd {
namespace {

using at::Tensor;
using detail::BoxesMeta;

// Kept with the tensor that they are of: tensors made of it have other shards.
struct Handles {
  std::vector<std::vector<RemoteTensor>> by_place;  // in the group
};

const Handles* handles_of(const Tensor& tensor) {
  const BoxesMeta* meta = detail::boxes_of(tensor);
  return meta != nullptr ? static_cast<const Handles*>(meta->attached.get()) : nullptr;
}

}  // namespace

void detail::register_remote_shards(const Tensor& tensor) {
  const ShardedLayout& layout = require_group("init_rrefs", tensor);
  if (!layout.holders.group()) return;
  BoxesMeta* meta = boxes_of(tensor);
  std::vector<Tensor> pieces;
  for (const Tensor& piece : meta->pieces) pieces.push_back(piece.detach());
  auto handles = std::make_shared<Handles>();
  handles->by_place = share_tensors(*layout.holders.group(), *layout.holders.world(), std::move(pieces));
  meta->attached = std::move(handles);
}

bool detail::has_remote_shards(const Tensor& tensor) { return handles_of(tensor) != nullptr; }

namespace sharded {

std::map<int64_t, std::vector<RemoteShard>> ShardedTensor::remote_shards() const {
  constexpr const char* kOperation = "remote_shards";
  const detail::ShardedLayout& layout = detail::require_group(kOperation, *this);
  const Handles* handles = handles_of(*this);
  if (handles == nullptr) {
    detail::throw_error(ErrorText(kOperation, "the tensor was made without init_rrefs")
                            .fact("tensor", to_string(*this))
                            .help("{.init_rrefs = true} when it is made, after sherd::init_rpc(world)"));
  }
  std::map<int64_t, std::vector<RemoteShard>> shards;
  const auto parts = layout.parts();
  const auto& ranks = layout.holders.ranks();
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t rank = parts[i].rank;
    if (rank == layout.holders.rank()) continue;
    const auto place = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    shards[rank].emplace_back(layout.spec.kind().shard(layout.size, i), handles->by_place[place][parts[i].number]);
  }
  return shards;
}

}  // namespace sharded
}  // namespace sherd
