#pragma once
// Tensors that lie in boxes which the ranks name themselves: ShardedTensor, LocalShardsWrapper. As a DTensor they are
// ordinary TensorImpls of sherd's key with global sizes; this meta holds the pieces.

#include <memory>
#include <optional>
#include <vector>

#include "sherd/box.h"
#include "sherd/device_mesh.h"
#include "tensor/meta.h"
#include "tensor/op_info.h"

namespace sherd::detail {

/// Which part of a tensor the pieces of this rank are. Never changes; tensors that are cut alike share it.
struct BoxLayout {
  Dims size;
  std::vector<Box> boxes;  // of this rank's pieces
  std::vector<bool> cut;   // per dim: some piece of some rank, not an empty one, does not hold all of it
  /// The ranks that hold the tensor together; nothing for a rank's own box of pieces.
  std::optional<DeviceMesh> mesh = {};
  /// Where a rank's own pieces stand in the tensor of which they are a part, and its size where that is known.
  struct Outer {
    std::vector<Box> boxes;
    std::optional<Dims> size = {};
  };
  std::optional<Outer> outer = {};

  BoxLayout() = default;
  BoxLayout(const BoxLayout&) = default;
  BoxLayout& operator=(const BoxLayout&) = delete;
  virtual ~BoxLayout() = default;
};
using BoxLayoutPtr = std::shared_ptr<const BoxLayout>;

struct BoxesMeta final : TensorMeta {
  BoxesMeta(BoxLayoutPtr l, std::vector<at::Tensor> p)
      : TensorMeta(MetaKind::boxes), layout(std::move(l)), pieces(std::move(p)) {}

  BoxLayoutPtr layout;
  std::vector<at::Tensor> pieces;             // one per box; may be such tensors themselves
  bool leaf_is_settled = false;               // as in DTensorMeta
  std::shared_ptr<const void> attached = {};  // what is this tensor's alone: those made of it do not have it

  c10::intrusive_ptr<BackendMeta> clone(const c10::intrusive_ptr<BackendMeta>&) const override {
    return c10::make_intrusive<BoxesMeta>(layout, pieces);
  }
};

/// The meta of a tensor in boxes, null for every other tensor.
inline BoxesMeta* boxes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_meta(tensor.unsafeGetTensorImpl())) return nullptr;
  auto* meta = static_cast<TensorMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return meta->kind == MetaKind::boxes ? static_cast<BoxesMeta*>(meta) : nullptr;
}

/// A tensor of these pieces. `device`: where they are, or would be if there were any.
at::Tensor wrap_pieces(BoxLayoutPtr layout, std::vector<at::Tensor> pieces, c10::ScalarType dtype, c10::Device device);

/// The part of a whole tensor that a box is, as a view.
at::Tensor part_of(const at::Tensor& whole, const Box& box);

/// A plain tensor of the layout's size in its pieces, which share its memory.
at::Tensor cut_into(const BoxLayoutPtr& layout, const at::Tensor& whole);

/// True where a tensor of the call lies in boxes, or is a DTensor of which the ranks' parts do (held_boxes.h).
bool has_boxes(const OpInfo& info, const torch::jit::Stack& stack);

/// What calls with such tensors go to. The room that knows what they are sets it when the library is loaded.
using BoxesKernel = void (*)(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);
extern BoxesKernel boxes_kernel;

}  // namespace sherd::detail
