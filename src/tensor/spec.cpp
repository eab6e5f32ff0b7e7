#include "tensor/spec.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "plan/held.h"

namespace sherd::detail {
namespace {

size_t mix(size_t hash, size_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ULL + (hash >> 29); }

size_t hash_of(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const Dims& strides,
               const HeldBoxesPtr& boxes, uint64_t gathers) {
  size_t hash = mix(reinterpret_cast<size_t>(mesh.identity()), reinterpret_cast<size_t>(boxes.get()));
  hash = mix(hash, static_cast<size_t>(gathers));
  for (const Placement& p : placements) {
    hash = mix(hash, p.index());
    hash = mix(hash, static_cast<size_t>(sharded_dim(p)));
    if (const auto* partial = std::get_if<Partial>(&p)) hash = mix(hash, static_cast<size_t>(partial->op));
  }
  for (const Dims* dims : {&sizes, &strides}) {
    for (const int64_t n : *dims) hash = mix(hash, static_cast<size_t>(n));
  }
  return hash;
}

struct Table {
  std::mutex mutex;
  std::unordered_multimap<size_t, SpecPtr> specs;
  size_t sweep_at = 1024;
};

Table& table() {
  static auto* value = new Table;  // never destroyed: tensors may live until the very end of the process
  return *value;
}

// Specs that nobody else holds are dropped, so that a program with ever new shapes does not grow for ever.
void sweep(Table& specs) {
  for (auto it = specs.specs.begin(); it != specs.specs.end();) {
    it = it->second.use_count() == 1 ? specs.specs.erase(it) : std::next(it);
  }
  specs.sweep_at = std::max<size_t>(1024, 2 * specs.specs.size());
}

bool none_cut(const DeviceMesh& mesh, const Placements& placements) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (is_shard(placements[axis]) && mesh.size(static_cast<int64_t>(axis)) > 1) return false;
  }
  return true;
}

bool any_partial(const Placements& placements) {
  return std::any_of(placements.begin(), placements.end(), [](const Placement& p) { return is_partial(p); });
}

}  // namespace

Spec::Spec(DeviceMesh on, Placements where, Dims global_sizes, Dims global_strides, HeldBoxesPtr held,
           uint64_t gather_axes)
    : mesh(std::move(on)),
      placements(std::move(where)),
      sizes(std::move(global_sizes)),
      strides(std::move(global_strides)),
      local_sizes(mesh.coordinate()
                      ? local_shape({plan::without_ranks(mesh.mesh()), sizes, placements}, *mesh.coordinate())
                      : Dims{0}),
      has_partial(any_partial(placements)),
      is_whole(none_cut(mesh, placements)),
      boxes(std::move(held)),
      gathers(gather_axes) {}

SpecPtr intern_spec(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const Dims& strides,
                    const HeldBoxesPtr& boxes, uint64_t gathers) {
  const size_t hash = hash_of(mesh, placements, sizes, strides, boxes, gathers);
  Table& specs = table();
  const std::lock_guard lock(specs.mutex);
  const auto [begin, end] = specs.specs.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Spec& spec = *it->second;
    // The same mesh cut out of another root is another one: it meets the slices of that root.
    if (spec.mesh == mesh && spec.mesh.same_root(mesh) && spec.placements == placements && spec.sizes == sizes &&
        spec.strides == strides && spec.boxes == boxes && spec.gathers == gathers) {
      return it->second;
    }
  }
  if (specs.specs.size() >= specs.sweep_at) sweep(specs);
  auto spec = c10::make_intrusive<const Spec>(mesh, placements, sizes, strides, boxes, gathers);
  specs.specs.emplace(hash, spec);
  return spec;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

Dims strides_like(const Dims& sizes, at::IntArrayRef local_sizes, at::IntArrayRef local_strides) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Innermost first. A local dim of size 1 says nothing by its stride; it keeps its place.
  bool row_major = true;
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (local_sizes[d] > 1 && local_strides[d] != expected) row_major = false;
    expected *= std::max<int64_t>(local_sizes[d], 1);
  }
  if (row_major) return contiguous_strides(sizes);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (local_strides[a] != local_strides[b]) return local_strides[a] < local_strides[b];
    return a > b;
  });
  Dims strides(sizes.size());
  int64_t step = 1;
  for (const size_t d : order) {
    if (local_strides[d] == 0 && local_sizes[d] > 1) continue;
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

}  // namespace sherd::detail
