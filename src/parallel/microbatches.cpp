#include "parallel/microbatches.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "comm/errors.h"
#include "sherd/dtensor.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// How many parts of equal size the rows must have: one for each microbatch on each rank that has rows of its own.
int64_t parts_of(const Tensor& batch, int64_t count) {
  if (!is_dtensor(batch)) return count;
  const DeviceMesh mesh = mesh_of(batch);
  int64_t parts = count;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (sharded_dim(placements_of(batch)[static_cast<size_t>(axis)]) == 0) parts *= mesh.size(axis);
  }
  return parts;
}

Dims with_rows(const Tensor& tensor, int64_t rows) {
  Dims shape = tensor.sizes().vec();
  shape[0] = rows;
  return shape;
}

}  // namespace

std::vector<Tensor> cut_batch(const char* what, const Tensor& batch, int64_t count) {
  if (!batch.defined() || batch.dim() == 0) {
    throw_value_error(ErrorText("Pipeline", fmt::format("the {} must be a batch", what))
                          .fact(what, batch.defined() ? to_string(batch) : "undefined")
                          .help("a tensor whose dim 0 counts samples: input on the first rank, target on the last"));
  }
  const int64_t parts = parts_of(batch, count);
  if (batch.size(0) == 0 || batch.size(0) % parts != 0) {
    throw_value_error(ErrorText("Pipeline", "the batch does not divide into microbatches of one size")
                          .fact(what, to_string(batch))
                          .fact("microbatches", std::to_string(count))
                          .fact("ranks that share the rows", std::to_string(parts / count))
                          .help(fmt::format("a batch of {} rows, or fewer microbatches",
                                            (batch.size(0) + parts - 1) / parts * parts)));
  }
  if (!is_dtensor(batch)) return batch.split(batch.size(0) / count);
  Placements placements = placements_of(batch);
  for (Placement& p : placements) {
    if (sharded_dim(p) == 0) p = Shard(0);  // even cuts: whatever they were called
  }
  const Tensor even = redistribute(batch, placements);
  const Tensor local = to_local(even);
  std::vector<Tensor> result;
  for (const Tensor& rows : local.split(local.size(0) / count)) {
    result.push_back(from_local(rows, mesh_of(batch), placements, {.shape = with_rows(batch, batch.size(0) / count)}));
  }
  return result;
}

Tensor join_batch(const std::vector<Tensor>& parts) {
  const Tensor& first = parts.front();
  if (first.dim() == 0 || !is_dtensor(first)) return at::cat(parts);
  std::vector<Tensor> locals;
  for (const Tensor& part : parts) locals.push_back(to_local(part));
  const int64_t rows = first.size(0) * static_cast<int64_t>(parts.size());
  return from_local(at::cat(locals), mesh_of(first), placements_of(first), {.shape = with_rows(first, rows)});
}

}  // namespace sherd::detail
