#include "tensor/runs.h"

#include <ATen/ops/cat.h>

#include "tensor/row_places.h"

namespace sherd::detail {
namespace {

// Calls copy(part of local, part of block) for every run of the places that the block's rows have in the local tensor.
template <typename Copy>
void for_each_piece(const at::Tensor& local, const std::vector<RunList>& places, size_t dim, const at::Tensor& block,
                    const Copy& copy) {
  if (dim == places.size()) return copy(local, block);
  int64_t at = 0;
  for (const Run& run : places[dim]) {
    const auto d = static_cast<int64_t>(dim);
    for_each_piece(local.narrow(d, run.offset, run.size), places, dim + 1, block.narrow(d, at, run.size), copy);
    at += run.size;
  }
}

}  // namespace

at::Tensor take(const at::Tensor& local, const RunGrid& held, const RunGrid& rows) {
  at::Tensor part = local;
  for (size_t d = 0; d < rows.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    const RunList places = positions(held[d], rows[d]);
    if (places.size() == 1) {
      if (places[0].offset != 0 || places[0].size != part.size(dim)) {
        part = part.narrow(dim, places[0].offset, places[0].size);
      }
      continue;
    }
    if (places.empty()) {
      part = part.narrow(dim, 0, 0);
      continue;
    }
    std::vector<at::Tensor> pieces;
    for (const Run& run : places) pieces.push_back(part.narrow(dim, run.offset, run.size));
    part = at::cat(pieces, dim);
  }
  return part;
}

void put(const at::Tensor& local, const RunGrid& held, const RunGrid& rows, const at::Tensor& block) {
  for_each_piece(local, places_of(held, rows), 0, block,
                 [](const at::Tensor& here, const at::Tensor& there) { here.copy_(there); });
}

void get(const at::Tensor& local, const RunGrid& held, const RunGrid& rows, const at::Tensor& block) {
  for_each_piece(local, places_of(held, rows), 0, block,
                 [](const at::Tensor& here, const at::Tensor& there) { there.copy_(here); });
}

}  // namespace sherd::detail
