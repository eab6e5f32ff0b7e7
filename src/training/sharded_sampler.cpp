#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>

#include "comm/errors.h"
#include "random/permutation.h"
#include "sherd/sharded_data.h"

namespace sherd {

// Loaders ask from the thread that iterates; a program may save meanwhile.
struct ShardedSampler::Deal {
  mutable std::mutex mutex;
  size_t size = 0;
  int64_t ranks = 1;
  int64_t rank = 0;
  ShardedSamplerOptions options;
  State state;
  bool begun = false;  // the next reset() begins another epoch
  std::optional<detail::Permutation> order;
  uint64_t order_epoch = 0;

  size_t at(uint64_t place) {
    if (!options.shuffle) return place;
    if (!order || order_epoch != state.epoch) {
      order.emplace(size, options.seed, state.epoch);
      order_epoch = state.epoch;
    }
    return (*order)(place);
  }
};

namespace {

// The places of a mesh in the order of its axes: how Shard(0) on all of them cuts rows.
std::pair<int64_t, int64_t> place_in(const DeviceMesh& mesh) {
  if (!mesh.coordinate()) {
    detail::throw_value_error(ErrorText("ShardedSampler", "this rank is not in the mesh")
                                  .fact("mesh", to_string(mesh))
                                  .help("make the sampler on the ranks of the mesh alone"));
  }
  int64_t place = 0;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) place = place * mesh.size(axis) + mesh.local_rank(axis);
  return {mesh.size(), place};
}

}  // namespace

ShardedSampler::ShardedSampler(size_t size, const DeviceMesh& data_mesh, const ShardedSamplerOptions& options)
    : ShardedSampler(size, place_in(data_mesh).first, place_in(data_mesh).second, options) {}

ShardedSampler::ShardedSampler(size_t size, int64_t ranks, int64_t rank, const ShardedSamplerOptions& options)
    : deal_(std::make_shared<Deal>()) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    detail::throw_value_error(ErrorText("ShardedSampler", "there is no such rank")
                                  .fact("rank", std::to_string(rank))
                                  .fact("ranks", std::to_string(ranks))
                                  .help("0 <= rank < ranks"));
  }
  deal_->size = size;
  deal_->ranks = ranks;
  deal_->rank = rank;
  deal_->options = options;
}

ShardedSampler::State ShardedSampler::state() const {
  const std::lock_guard lock(deal_->mutex);
  return deal_->state;
}

void ShardedSampler::set_state(const State& state) {
  const std::lock_guard lock(deal_->mutex);
  deal_->state = state;
  deal_->begun = false;
}

void ShardedSampler::reset(std::optional<size_t> new_size) {
  const std::lock_guard lock(deal_->mutex);
  if (new_size && *new_size != deal_->size) {
    deal_->size = *new_size;
    deal_->order.reset();
  }
  if (deal_->begun) deal_->state = {deal_->state.epoch + 1, 0};
  deal_->begun = true;
}

std::optional<std::vector<size_t>> ShardedSampler::next(size_t batch_size) {
  const std::lock_guard lock(deal_->mutex);
  Deal& deal = *deal_;
  deal.begun = true;
  const uint64_t taken = deal.state.taken;
  if (taken >= deal.size || batch_size == 0) return std::nullopt;
  const auto ranks = static_cast<uint64_t>(deal.ranks);
  const uint64_t left = deal.size - taken;
  uint64_t mine = batch_size;
  if (left < batch_size * ranks) mine = (left + (deal.options.rest == UnevenRest::pad ? ranks - 1 : 0)) / ranks;
  deal.state.taken = mine < batch_size ? deal.size : std::min<uint64_t>(taken + mine * ranks, deal.size);
  if (mine == 0) return std::nullopt;
  std::vector<size_t> samples;
  samples.reserve(mine);
  const uint64_t first = taken + static_cast<uint64_t>(deal.rank) * mine;
  for (uint64_t i = 0; i < mine; ++i) samples.push_back(deal.at((first + i) % deal.size));
  return samples;
}

void ShardedSampler::save(torch::serialize::OutputArchive& archive) const {
  const State now = state();
  archive.write("epoch", c10::IValue(static_cast<int64_t>(now.epoch)));
  archive.write("taken", c10::IValue(static_cast<int64_t>(now.taken)));
}

void ShardedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch;
  c10::IValue taken;
  archive.read("epoch", epoch);
  archive.read("taken", taken);
  set_state({static_cast<uint64_t>(epoch.toInt()), static_cast<uint64_t>(taken.toInt())});
}

}  // namespace sherd
