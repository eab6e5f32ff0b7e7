#pragma once
// What a tensor-parallel style wants of the operator that uses a parameter. Modules of libtorch cannot be hooked, so
// the wishes ride on the parameter, and the operator that consumes it moves its input and its result.
//
// Tensors with wishes carry a dispatch key of their own, above autograd and autocast, at which linear, addmm, matmul,
// embedding and the norms have kernels; tensors without them never come there.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>

#include <memory>
#include <optional>
#include <string>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// The key that torch leaves to code outside it.
inline constexpr c10::DispatchKey kWishKey = c10::DispatchKey::DeferredInit;

/// Placements of one mesh axis. What is not set is left as it comes.
struct Wish {
  /// How ranks hold an input that is a plain tensor; not set: each has all of it.
  std::optional<Placement> plain = {};
  std::optional<Placement> input = {};
  std::optional<Placement> output = {};
  bool operator==(const Wish&) const = default;
};

/// By the kind of operator: a table may be looked up and multiplied with (tied weights).
struct Wishes {
  DeviceMesh mesh;       // of one axis
  std::string who = {};  // for errors: "fc1.weight"
  std::optional<Wish> product = {};
  std::optional<Wish> lookup = {};
  std::optional<Wish> norm = {};
  bool is_born = false;  // made by ShardedInit: its placements are nobody's wish yet
};
using WishesPtr = std::shared_ptr<const Wishes>;

/// Gives a DTensor wishes, or takes them away (null). Operators that make a parameter anew (redistribute, set_data of
/// another tensor) do not carry them.
void set_wishes(const at::Tensor& tensor, WishesPtr wishes);
/// Null where there are none.
WishesPtr wishes_of(const at::Tensor& tensor);

/// The axis of `mesh` that is the one axis of `own`: the same ranks under the same name. None where it has no such.
std::optional<size_t> axis_in(const DeviceMesh& mesh, const DeviceMesh& own);

/// The DTensor with placement `to` on the axis of `own`, the other axes as they are. Differentiable. A tensor of a mesh
/// without that axis, which counts as replicated there, stays what it is. Throws c10::ValueError, naming `who` asked,
/// where the tensor has no such dim.
at::Tensor bring(const std::string& who, const at::Tensor& tensor, const DeviceMesh& own, const Placement& to);

}  // namespace sherd::detail
