// chunk() of a dim that is StridedShard by as many chunks: queries, keys and values from one packed product. Each rank
// has its part of every chunk, so that nothing is moved: as a view with a dim for the chunks, and that dim unbound.

#include <ATen/core/Tensor.h>
#include <ATen/ops/chunk_native.h>
#include <ATen/ops/unbind.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;

// One axis alone cuts the dim, into `chunks` that each divide by its ranks.
bool is_cut_by(const Spec& spec, int64_t dim, int64_t chunks) {
  bool found = false;
  for (size_t axis = 0; axis < spec.placements.size(); ++axis) {
    if (sharded_dim(spec.placements[axis]) != dim) continue;
    const auto* strided = std::get_if<StridedShard>(&spec.placements[axis]);
    if (found || strided == nullptr || strided->split != chunks) return false;
    const int64_t size = spec.sizes[static_cast<size_t>(dim)];
    if (size % (chunks * spec.mesh.size(static_cast<int64_t>(axis))) != 0) return false;
    found = true;
  }
  return found;
}

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  const DTensorMeta* meta = meta_of(self);
  if (meta == nullptr || self.dim() == 0 || chunks < 2 || meta->spec->boxes) {
    return at::native::chunk(self, chunks, dim);
  }
  const int64_t d = c10::maybe_wrap_dim(dim, self.dim());
  if (!is_cut_by(*meta->spec, d, chunks)) return at::native::chunk(self, chunks, dim);
  return at::unbind(self.unflatten(d, {chunks, self.size(d) / chunks}), d);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, library) { library.impl("chunk", chunk); }
TORCH_LIBRARY_IMPL(aten, PrivateUse2, library) { library.impl("chunk", chunk); }

}  // namespace
}  // namespace sherd::detail
