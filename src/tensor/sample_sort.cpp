#include "tensor/sample_sort.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>

#include "tensor/edges.h"
#include "tensor/pieces.h"
#include "tensor/redistributed.h"
#include "tensor/rewrite_tools.h"
#include "tensor/rewrites.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kSamples = plan::kSortSamples;

// Up to kSamples of a sorted vector, at equal distances; a vector that has fewer is sampled more than once.
Tensor sampled(const Tensor& sorted) {
  const Tensor places =
      at::arange(kSamples, sorted.options().dtype(c10::kLong)).mul(sorted.size(0)).div(kSamples, "floor");
  return sorted.index_select(0, places);
}

// Which piece a value goes to. Equal values go to one piece, so that their order is the order in which they come there.
Tensor pieces_for(const Tensor& values, const Tensor& splitters, bool descending) {
  const Tensor above = at::searchsorted(splitters, values.contiguous(), /*out_int32=*/false, /*right=*/true);
  return descending ? splitters.size(0) - above : above;
}

std::vector<int64_t> to_vector(const Tensor& numbers) {
  const Tensor there = numbers.cpu().contiguous();
  return {there.const_data_ptr<int64_t>(), there.const_data_ptr<int64_t>() + there.numel()};
}

}  // namespace

// sort(self, dim, descending) and sort.stable(self, stable, dim, descending) -> values, indices. Always stable.
bool sample_sort(const c10::OperatorHandle& op, Stack& stack) {
  const Tensor given = argument(stack, op, 0).toTensor();
  const size_t last = op.schema().arguments().size() - 1;
  if (given.dim() != 1 || given.is_complex() || given.scalar_type() == c10::kBool) return false;
  if (!sharded_dim_named(given, argument(stack, op, last - 1))) return false;
  const auto found = Pieces::of(given, 0);
  const bool descending = argument(stack, op, last).toBool();
  if (!found || !plan::is_sorted_by_samples(found->rows(), given.size(0))) return false;
  const Tensor self = reduced(given);
  // NaN stands above all in a sorted tensor, and nowhere in a search.
  if (self.is_floating_point() && at::isnan(self).any().item<bool>()) return not_for_these_data();
  const Pieces pieces = *Pieces::of(self, 0);
  const auto count = static_cast<int64_t>(pieces.count());
  auto [values, places] = at::sort(part_of(self), /*stable=*/true, 0, descending);
  places = places + pieces.mine().begin;
  const Tensor samples = std::get<0>(at::sort(pieces.gather(sampled(values))));
  const Tensor splitters = samples.index_select(0, at::arange(1, count, places.options()).mul(kSamples)).contiguous();
  const Tensor gives = at::bincount(pieces_for(values, splitters, descending), {}, count);
  const Tensor all = pieces.gather(gives).view({count, count});  // who gives how many to whom
  const std::vector<int64_t> takes = to_vector(all.select(1, static_cast<int64_t>(pieces.here())));
  const auto [sorted, order] = at::sort(pieces.deal(values, to_vector(gives), takes), /*stable=*/true, 0, descending);
  const Tensor sorted_places = pieces.deal(places, to_vector(gives), takes).index_select(0, order);
  // Pieces have the sizes that the values gave them: they are evened out.
  const std::vector<int64_t> sizes = to_vector(all.sum(0));
  const SpecPtr spec = meta_of(self)->spec;
  const Placements cut = pieces.placements_for(spec->placements, sizes);
  const auto settled = [&](const Tensor& part) {
    return redistributed(from_parts(spec->mesh, cut, spec->sizes, part), spec->placements);
  };
  answer(op, stack, settled(sorted));
  stack.emplace_back(settled(sorted_places));
  return true;
}

}  // namespace sherd::detail
