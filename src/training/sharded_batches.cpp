#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/errors.h"
#include "comm/observer.h"
#include "sherd/collectives.h"
#include "sherd/dtensor.h"
#include "sherd/sharded_data.h"

namespace sherd::detail {
namespace {

using at::Tensor;

constexpr int64_t kNoBatch = -1;
constexpr int64_t kUneven = -2;  // the tensors of a batch have different numbers of rows
constexpr int64_t kNoRows = -3;  // a batch in which no tensor has rows

// One number of every rank along the axes, in the order of their places: the last axis is innermost.
std::vector<int64_t> numbers_along(const DeviceMesh& mesh, const std::vector<int64_t>& axes, int64_t mine) {
  const detail::CauseScope cause("sharded batches");
  Tensor own = at::empty({1}, at::TensorOptions(c10::kLong)).fill_(mine).to(mesh.device());
  for (size_t i = axes.size(); i-- > 0;) {
    const Group group = mesh.group(axes[i]);
    const Tensor all = at::empty({group.size() * own.numel()}, own.options());
    all_gather(group, all, own).wait();
    own = all;
  }
  own = own.cpu();
  return {own.const_data_ptr<int64_t>(), own.const_data_ptr<int64_t>() + own.numel()};
}

int64_t rows_of(const std::optional<std::vector<Tensor>>& tensors) {
  if (!tensors) return kNoBatch;
  int64_t rows = kNoRows;
  for (const Tensor& tensor : *tensors) {
    if (!tensor.defined() || tensor.dim() == 0) continue;
    if (rows == kNoRows) rows = tensor.size(0);
    if (rows != tensor.size(0)) return kUneven;
  }
  return rows;
}

std::string places_with(const std::vector<int64_t>& rows, int64_t what) {
  std::string places;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == what) places += (places.empty() ? "" : ", ") + std::to_string(i);
  }
  return places;
}

}  // namespace

BatchPlacer::BatchPlacer(const DeviceMesh& mesh, ShardedBatchesOptions options)
    : mesh_(mesh), options_(std::move(options)), placements_(static_cast<size_t>(mesh.ndim()), Replicate()) {
  const auto cut = [&](int64_t axis) {
    placements_[static_cast<size_t>(axis)] = Shard(0);
    axes_.push_back(axis);
  };
  for (const std::string& name : options_.axes) {
    const auto axis = mesh.mesh().find_axis(name);
    if (!axis) {
      throw_value_error(ErrorText("sharded_batches", "there is no axis \"" + name + "\"")
                            .fact("mesh", to_string(mesh))
                            .help("name the axes of the mesh that cut the batch, or none for all"));
    }
    if (std::find(axes_.begin(), axes_.end(), *axis) == axes_.end()) cut(*axis);
  }
  if (options_.axes.empty()) {
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) cut(axis);
  }
  std::sort(axes_.begin(), axes_.end());
  if (!mesh.coordinate()) {
    throw_value_error(ErrorText("sharded_batches", "this rank is not in the mesh")
                          .fact("mesh", to_string(mesh))
                          .help("read batches on the ranks of the mesh alone"));
  }
}

bool BatchPlacer::agree(const std::optional<std::vector<Tensor>>& tensors) {
  const int64_t mine = rows_of(tensors);
  if (options_.equal) {
    int64_t ranks = 1;
    for (const int64_t axis : axes_) ranks *= mesh_.size(axis);
    rows_.assign(static_cast<size_t>(ranks), mine);
  } else {
    rows_ = numbers_along(mesh_, axes_, mine);
  }
  const auto has = [&](int64_t what) { return std::find(rows_.begin(), rows_.end(), what) != rows_.end(); };
  if (std::all_of(rows_.begin(), rows_.end(), [](int64_t rows) { return rows == kNoBatch; })) return false;
  if (has(kNoBatch)) {
    throw_value_error(ErrorText("sharded_batches", "some ranks have no more batches while others have")
                          .fact("places without", places_with(rows_, kNoBatch))
                          .fact("of", to_string(mesh_))
                          .help("sherd::ShardedSampler, which gives every rank equally many"));
  }
  if (has(kUneven)) {
    throw_value_error(ErrorText("sharded_batches", "the tensors of a batch have different numbers of rows")
                          .fact("at places", places_with(rows_, kUneven))
                          .fact("of", to_string(mesh_))
                          .help("stack samples along dim 0 of every tensor"));
  }
  return true;
}

Tensor BatchPlacer::placed(const Tensor& rows) const {
  if (!rows.defined() || rows.dim() == 0) return rows;
  const Tensor here = rows.to(mesh_.device());
  // As torch.chunk cuts a tensor into equal parts; others have to be written down.
  const bool equal = std::all_of(rows_.begin(), rows_.end(), [&](int64_t n) { return n == rows_.front(); });
  FromLocalOptions options;
  if (equal) {
    options.shape = here.sizes().vec();
    options.shape->front() = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
  }
  return from_local(here, mesh_, placements_, options);
}

}  // namespace sherd::detail
