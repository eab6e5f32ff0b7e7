#pragma once
// How a DTensor is built: an ordinary TensorImpl with the key PrivateUse2 beside its device's, global sizes and
// strides, and this meta, which holds the spec and the local tensor.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "tensor/arrival.h"
#include "tensor/gathering.h"
#include "tensor/pool.h"
#include "tensor/spec.h"
#include "tensor/view_origin.h"
#include "tensor/wishes.h"

namespace sherd::detail {

inline constexpr c10::DispatchKey kKey = c10::DispatchKey::PrivateUse2;

/// One key serves two kinds of tensors: DTensors, and those that lie in boxes (boxes_meta.h).
enum class MetaKind : uint8_t { dtensor, boxes };

struct TensorMeta : c10::BackendMeta {
  explicit TensorMeta(MetaKind k) : kind(k) {}
  const MetaKind kind;
};

struct DTensorMeta final : TensorMeta, Pooled<DTensorMeta> {
  DTensorMeta(SpecPtr s, at::Tensor l) : TensorMeta(MetaKind::dtensor), spec(std::move(s)), local(std::move(l)) {}

  SpecPtr spec;
  at::Tensor local;
  ViewOriginPtr origin = {};   // of a view whose data had to be moved
  GatheringPtr gathered = {};  // of a parameter that is brought together for use, and of its views
  bool is_cut = false;         // a view of some elements only
  bool is_placed = false;  // of one that is cut: storage_offset() is that of one device, and its memory is around it
  // A leaf whose gradient a hook brings to its placements before it is accumulated. A tensor that is none may become
  // one: detach_().
  bool leaf_is_settled = false;
  bool is_transposed = false;  // the wishes are those of the tensor of which this is t()
  WishesPtr wishes = {};       // of a parameter that a tensor-parallel style was given to
  ArrivalPtr arrival = {};     // of a tensor on its way: until it is there, `local` has no elements

  // What watches a tensor, and is held by its meta, holds that meta weakly: a weak hold on the tensor itself would keep
  // its meta, and so itself, for ever. Called when the tensor is gone and somebody still watches.
  void release_resources() override {
    local.reset();
    origin.reset();
    gathered.reset();
    wishes.reset();
    arrival.reset();
  }

  // Every tensor has a meta of its own: detach() and set_data() copy it.
  c10::intrusive_ptr<BackendMeta> clone(const c10::intrusive_ptr<BackendMeta>&) const override {
    auto copy = c10::make_intrusive<DTensorMeta>(spec, local);
    copy->origin = origin;
    copy->gathered = gathered;
    copy->is_cut = is_cut;
    copy->is_placed = is_placed;
    copy->is_transposed = is_transposed;
    copy->wishes = wishes;
    copy->arrival = arrival;
    return copy;
  }
};

/// True for the tensors of sherd's key.
inline bool has_meta(const c10::TensorImpl* impl) {
  return impl->key_set().has_backend(c10::BackendComponent::PrivateUse2Bit);
}

/// The meta of a DTensor, null for every other tensor.
inline DTensorMeta* meta_of(const c10::TensorImpl* impl) {
  if (!has_meta(impl)) return nullptr;
  auto* meta = static_cast<TensorMeta*>(const_cast<c10::TensorImpl*>(impl)->get_backend_meta());
  return meta->kind == MetaKind::dtensor ? static_cast<DTensorMeta*>(meta) : nullptr;
}
inline DTensorMeta* meta_of(const at::Tensor& tensor) {
  return tensor.defined() ? meta_of(tensor.unsafeGetTensorImpl()) : nullptr;
}

/// This rank's part as it is now: waited for where it is on its way, and fetched anew where it is a copied view whose
/// tensor has changed.
inline const at::Tensor& current_local(DTensorMeta& meta) {
  if (meta.arrival) {
    meta.local = meta.arrival->local();
    meta.arrival.reset();
  }
  if (meta.origin) refresh(*meta.origin);
  return meta.local;
}

/// To be called when this rank's part was written.
inline void wrote_local(DTensorMeta& meta) {
  note_write(meta.local, meta.spec->mesh);
  if (meta.origin) write_through(*meta.origin);
}

/// The same for all that one call wrote: a copied view has what else was written of its tensor as it was before.
void wrote_locals(c10::ArrayRef<DTensorMeta*> metas);

/// A DTensor of a spec and this rank's part of it. `local` must not require grad.
at::Tensor wrap(SpecPtr spec, at::Tensor local);

/// A tensor of sherd's key with this meta, without data of its own.
at::Tensor wrap_meta(c10::intrusive_ptr<TensorMeta> meta, at::IntArrayRef sizes, at::IntArrayRef strides,
                     caffe2::TypeMeta dtype, c10::Device device);

/// A local tensor's spec where its global form has the same order of dims in memory.
SpecPtr spec_for(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const at::Tensor& local);

/// The meta, or c10::ValueError "<operation>: not a DTensor".
DTensorMeta& require_dtensor(const char* operation, const at::Tensor& tensor);

/// Throws c10::NotImplementedError for undefined, sparse, nested and quantized tensors.
void require_dense(const char* operation, const at::Tensor& tensor);

/// "f32[64@dp, 32] on [dp=2]".
std::string describe(const Spec& spec, c10::ScalarType dtype);

}  // namespace sherd::detail
