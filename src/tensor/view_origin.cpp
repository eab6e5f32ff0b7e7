#include "tensor/view_origin.h"

#include <c10/core/StorageImpl.h>

#include <map>
#include <mutex>

#include "tensor/held_boxes.h"
#include "tensor/meta.h"
#include "tensor/move.h"

namespace sherd::detail {

std::atomic<int64_t> copied_views{0};

namespace {

// A rank's memory. Rank threads may hold one storage in common; each counts its own writes, so that all ranks come to
// the same count at the same place in the program.
using Memory = std::pair<const c10::StorageImpl*, int>;

struct Watched {
  int64_t views = 0;
  uint64_t writes = 0;
};

struct Table {
  std::mutex mutex;
  std::map<Memory, Watched> memories;
};

Table& table() {
  static auto* value = new Table;  // never destroyed: tensors may live until the very end of the process
  return *value;
}

Memory memory_of(const at::Tensor& local, const DeviceMesh& mesh) {
  return {local.storage().unsafeGetStorageImpl(), mesh.world().rank()};
}

uint64_t writes_to(const ViewOrigin& origin) {
  const std::lock_guard lock(table().mutex);
  return table().memories[memory_of(origin.base, origin.mesh)].writes;
}

}  // namespace

ViewOrigin::ViewOrigin(at::Tensor copied, at::Tensor copy, ViewOriginPtr above, const DeviceMesh& on, Dims whole,
                       Placements before, Placements after, HeldBoxesPtr held)
    : base(std::move(copied)),
      moved(std::move(copy)),
      parent(std::move(above)),
      mesh(on),
      shape(std::move(whole)),
      from(std::move(before)),
      boxes(std::move(held)),
      to(std::move(after)) {
  const std::lock_guard lock(table().mutex);
  Watched& watched = table().memories[memory_of(base, mesh)];
  ++watched.views;
  seen = watched.writes;
  copied_views.fetch_add(1, std::memory_order_relaxed);
}

ViewOrigin::ViewOrigin(at::Tensor copied, at::Tensor copy, const HeldBoxesPtr& held)
    : ViewOrigin(std::move(copied), std::move(copy), {}, *held->mesh, held->size, held->placements, held->placements,
                 held) {}

ViewOrigin::~ViewOrigin() {
  const std::lock_guard lock(table().mutex);
  const auto watched = table().memories.find(memory_of(base, mesh));
  if (watched != table().memories.end() && --watched->second.views == 0) table().memories.erase(watched);
  copied_views.fetch_sub(1, std::memory_order_relaxed);
}

void count_write(const at::Tensor& local, const DeviceMesh& mesh) {
  if (!local.has_storage()) return;
  const std::lock_guard lock(table().mutex);
  const auto watched = table().memories.find(memory_of(local, mesh));
  if (watched != table().memories.end()) ++watched->second.writes;
}

void refresh(ViewOrigin& origin) {
  if (origin.parent) refresh(*origin.parent);
  const uint64_t writes = writes_to(origin);
  if (writes == origin.seen) return;
  const at::Tensor fresh = origin.boxes ? out_of_boxes(*origin.boxes, origin.base, origin.to)
                                        : move(origin.base, origin.mesh, origin.shape, origin.from, origin.to);
  if (!fresh.is_alias_of(origin.moved)) origin.moved.copy_(fresh);
  origin.seen = writes;
  note_write(origin.moved, origin.mesh);  // for copies of the copy
}

void write_through(ViewOrigin& origin) {
  if (origin.boxes) {
    const SpecPtr spec = intern_spec(origin.mesh, origin.to, origin.shape, contiguous_strides(origin.shape));
    const auto pieces = pieces_in_boxes("copy_", wrap(spec, origin.moved), *origin.boxes);
    for (size_t i = 0; i < pieces.size(); ++i) boxes_of(origin.base)->pieces[i].copy_(pieces[i]);
  } else {
    origin.base.copy_(move(origin.moved, origin.mesh, origin.shape, origin.to, origin.from));
  }
  note_write(origin.base, origin.mesh);
  origin.seen = writes_to(origin);
  if (origin.parent) write_through(*origin.parent);
}

}  // namespace sherd::detail
