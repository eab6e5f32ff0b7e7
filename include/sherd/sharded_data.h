#pragma once
// Batches for data parallel training: which samples a rank reads, and its rows as a part of one batch.
//
//   sherd::ShardedSampler sampler(dataset_size, mesh["dp"], {.seed = 7});
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, batch_per_rank);
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     for (auto& batch : sherd::sharded_batches(loader, mesh["dp"])) step(batch.data, batch.target);   // Shard(0) on
//     dp
//   }

#include <ATen/core/Tensor.h>
#include <torch/data/example.h>
#include <torch/data/samplers/base.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// What becomes of the samples at the end of an epoch that the ranks cannot share evenly.
enum class UnevenRest : uint8_t {
  pad,   ///< some samples of the epoch's beginning come a second time
  drop,  ///< they are left out
};

struct ShardedSamplerOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  UnevenRest rest = UnevenRest::pad;
};

/// Deals samples to the ranks of a data mesh, so that together they read the batches of one device: with `b` samples
/// per rank, the k-th batch of all ranks has the samples that the k-th batch of ranks * b has on one rank, in that
/// order, rank 0 the first of them. The order of an epoch follows from the seed and the epoch alone; every rank can
/// have it without a word from the others, and no list of all samples is kept. All ranks get equally many, in every
/// batch.
///
/// A handle: a loader copies it, and the copies deal from one pack. Axes that the mesh does not have get the same:
/// ranks that differ in their place along "tp" read the same samples where the mesh is mesh["dp"].
class ShardedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws c10::ValueError where this rank is not in the mesh.
  ShardedSampler(size_t size, const DeviceMesh& data_mesh, const ShardedSamplerOptions& options = {});
  /// For rank `rank` of `ranks`, without a mesh.
  ShardedSampler(size_t size, int64_t ranks, int64_t rank, const ShardedSamplerOptions& options = {});

  /// How far the ranks are, together. It serves any number of ranks: a run can go on with more or fewer.
  struct State {
    uint64_t epoch = 0;
    uint64_t taken = 0;  // samples of the epoch
  };
  /// What was dealt. A loader with worker threads asks for batches ahead of time: there, a program that saves itself
  /// counts what it has used, {epoch, steps * batch * ranks}.
  State state() const;
  /// Goes on from there: at once, and after the next reset(), which loaders call when they begin.
  void set_state(const State& state);
  /// The epoch that begins with the next reset().
  void set_epoch(uint64_t epoch) { set_state({epoch, 0}); }

  /// Begins an epoch: the first one, that of set_state(), or the one after the last.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// This rank's next samples; fewer than batch_size at the end of an epoch.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Deal;
  std::shared_ptr<Deal> deal_;
};

struct ShardedBatchesOptions {
  /// Axes of the mesh that cut the batch; the others have the same rows. Empty: all.
  std::vector<std::string> axes = {};
  /// The loader gives every rank equally many batches, of equally many rows, as it does with a ShardedSampler: ranks
  /// need not ask each other.
  bool equal = false;
};

namespace detail {

/// Where the rows of batches go.
class BatchPlacer {
 public:
  BatchPlacer(const DeviceMesh& mesh, ShardedBatchesOptions options);

  /// Whether there is a batch, which has `tensors`. Throws, alike on every rank, where some ranks have one and others
  /// have not, or where the tensors of a batch have different numbers of rows.
  bool agree(const std::optional<std::vector<at::Tensor>>& tensors);
  /// The DTensor of all ranks' rows. A tensor without dims stays as it is.
  at::Tensor placed(const at::Tensor& rows) const;

 private:
  DeviceMesh mesh_;
  ShardedBatchesOptions options_;
  std::vector<int64_t> axes_;  // those that cut, and have more than one rank
  Placements placements_;
  std::vector<int64_t> rows_;  // of each rank along them, in the batch at hand
};

template <class F>
void for_each_tensor(at::Tensor& tensor, const F& f) {
  f(tensor);
}
template <class T, class F>
void for_each_tensor(T& /*number or text*/, const F& /*f*/) {}
template <class T, class Alloc, class F>
void for_each_tensor(std::vector<T, Alloc>& list, const F& f);
template <class T, size_t n, class F>
void for_each_tensor(std::array<T, n>& list, const F& f);
template <class T, class F>
void for_each_tensor(std::optional<T>& value, const F& f);
template <class A, class B, class F>
void for_each_tensor(std::pair<A, B>& pair, const F& f);
template <class... Ts, class F>
void for_each_tensor(std::tuple<Ts...>& tuple, const F& f);
template <class K, class V, class... Rest, class F>
void for_each_tensor(std::map<K, V, Rest...>& map, const F& f);
template <class K, class V, class... Rest, class F>
void for_each_tensor(std::unordered_map<K, V, Rest...>& map, const F& f);
template <class Data, class Target, class F>
void for_each_tensor(torch::data::Example<Data, Target>& example, const F& f);

template <class T, class Alloc, class F>
void for_each_tensor(std::vector<T, Alloc>& list, const F& f) {
  for (T& each : list) for_each_tensor(each, f);
}
template <class Alloc, class F>
void for_each_tensor(std::vector<bool, Alloc>& /*list*/, const F& /*f*/) {}
template <class T, size_t n, class F>
void for_each_tensor(std::array<T, n>& list, const F& f) {
  for (T& each : list) for_each_tensor(each, f);
}
template <class T, class F>
void for_each_tensor(std::optional<T>& value, const F& f) {
  if (value) for_each_tensor(*value, f);
}
template <class A, class B, class F>
void for_each_tensor(std::pair<A, B>& pair, const F& f) {
  for_each_tensor(pair.first, f);
  for_each_tensor(pair.second, f);
}
template <class... Ts, class F>
void for_each_tensor(std::tuple<Ts...>& tuple, const F& f) {
  std::apply([&](auto&... each) { (for_each_tensor(each, f), ...); }, tuple);
}
template <class K, class V, class... Rest, class F>
void for_each_tensor(std::map<K, V, Rest...>& map, const F& f) {
  for (auto& item : map) for_each_tensor(item.second, f);
}
// In the order of the keys: that of the map may differ between ranks.
template <class K, class V, class... Rest, class F>
void for_each_tensor(std::unordered_map<K, V, Rest...>& map, const F& f) {
  std::map<K, V*> in_order;
  for (auto& item : map) in_order.emplace(item.first, &item.second);
  for (auto& item : in_order) for_each_tensor(*item.second, f);
}
template <class Data, class Target, class F>
void for_each_tensor(torch::data::Example<Data, Target>& example, const F& f) {
  for_each_tensor(example.data, f);
  if constexpr (!std::is_void_v<Target>) for_each_tensor(example.target, f);
}

}  // namespace detail

/// The batches of a loader with their tensors as DTensors. Made by sharded_batches().
template <class Range>
class ShardedBatches {
  using Inner = decltype(std::declval<Range&>().begin());
  using End = decltype(std::declval<Range&>().end());

 public:
  using Batch = std::decay_t<decltype(*std::declval<Inner&>())>;

  ShardedBatches(Range& range, const DeviceMesh& mesh, ShardedBatchesOptions options)
      : range_(range), placer_(mesh, std::move(options)) {}

  /// Goes forward once; the batch it names is gone with the next step.
  class Iterator {
   public:
    Iterator(Range& range, detail::BatchPlacer& placer) : at_(range.begin()), end_(range.end()), placer_(&placer) {
      fetch();
    }
    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++() {
      ++at_;
      fetch();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    void fetch() {
      batch_.reset();
      std::optional<std::vector<at::Tensor>> tensors;
      if (at_ != end_) {
        batch_ = *at_;
        tensors.emplace();
        detail::for_each_tensor(*batch_, [&](const at::Tensor& tensor) { tensors->push_back(tensor); });
      }
      if (!placer_->agree(tensors)) return;
      detail::for_each_tensor(*batch_, [&](at::Tensor& tensor) { tensor = placer_->placed(tensor); });
    }

    Inner at_;
    End end_;
    detail::BatchPlacer* placer_;
    std::optional<Batch> batch_;
  };

  Iterator begin() { return Iterator(range_, placer_); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Range& range_;
  detail::BatchPlacer placer_;
};

/// The batches of a loader, or of any range, as batches of all ranks: every tensor in them is this rank's rows of a
/// DTensor on `mesh`, Shard(0) along its axes, or along those that the options name and replicated along the rest.
/// Batches may be tensors, torch::data::Example, and vectors, tuples, maps and optionals of these; all else stays as it
/// is. Tensors go to the mesh's device.
///
/// Ranks may bring different numbers of rows, which makes a Ragged shard, but all tensors of a batch have the same.
/// Every rank must bring as many batches as the others: where a loader ends before those of other ranks, all throw
/// c10::ValueError naming it. Finding out costs two numbers per batch and rank; see ShardedBatchesOptions::equal.
///
/// `loader` is what torch::data::make_data_loader returns, or a range; it must live as long as the result.
template <class Loader>
auto sharded_batches(Loader& loader, const DeviceMesh& mesh, ShardedBatchesOptions options = {}) {
  if constexpr (requires { loader.begin(); }) {
    return ShardedBatches<Loader>(loader, mesh, std::move(options));
  } else {
    return ShardedBatches<std::remove_reference_t<decltype(*loader)>>(*loader, mesh, std::move(options));
  }
}

}  // namespace sherd
