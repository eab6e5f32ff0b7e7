#pragma once
// DTensors of which every rank holds boxes that it names itself: their local tensors are LocalShardsWrappers. The boxes
// are part of the spec, so no plan for an ordinary DTensor serves such a one; operators on them go to boxes_kernel.
//
// What another rank holds is known once data have to move: the ranks then tell each other, once for all tensors that
// were made of one another. Whether they must is the same on every rank, since every rank makes the same calls.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/transfer.h"
#include "tensor/boxes_meta.h"
#include "tensor/meta.h"

namespace sherd::detail {

/// The layout of the whole tensor: sizes and boxes are the global ones. Axes on which the tensor is replicated cut the
/// mesh into copies, and the boxes of each copy tile the tensor.
struct HeldBoxes final : BoxLayout {
  /// `own` is the layout of the local tensor (BoxLayout::outer says where it stands); `type` its dtype, which must be
  /// the same on all ranks.
  HeldBoxes(BoxLayoutPtr own, const DeviceMesh& on, Placements where, Dims shape, c10::ScalarType type);

  const BoxLayoutPtr local;
  const Placements placements;
  const c10::ScalarType dtype;

  using BoxesByRank = std::map<int64_t, std::vector<Box>>;
  /// The boxes of all ranks of the mesh. The first call is an exchange that all of them take part in. Throws
  /// c10::ValueError on all of them where dtypes differ or a box is not inside the tensor.
  const BoxesByRank& of_all(const char* operation) const;
  /// The same where they are known already.
  void learn(const char* operation, BoxesByRank boxes) const;
  /// Throws c10::ValueError on all ranks where the boxes of a copy do not tile the tensor. Calls of_all.
  void check_copies(const char* operation) const;
  /// The ranks of this rank's copy, ascending; none outside the mesh.
  std::vector<int64_t> copy_ranks() const;

 private:
  mutable std::optional<BoxesByRank> of_all_ = {};  // written by the rank's own thread before another reads it
  mutable bool tiles_ = false;
};

/// What the ranks tell each other of a local tensor: dtype, boxes, and the size of the whole where it is known.
struct ToldOfBoxes {
  std::string dtype;
  std::vector<Box> boxes;
  std::optional<Dims> size;
};
std::map<int64_t, ToldOfBoxes> tell_of_boxes(const DeviceMesh& mesh, const BoxLayout& own, c10::ScalarType dtype);

/// Whether every rank holds the same boxes in the same order in both. An exchange where that is not known yet.
bool held_alike(const HeldBoxes& a, const HeldBoxes& b);

struct OutOfBoxes {
  const char* operation = "redistribute";
  int64_t staging_bytes = int64_t{64} << 20;
  std::optional<c10::ScalarType> move_dtype = {};
  bool background = false;  // by groups that nothing else uses; check_copies() was called before
};
/// This rank's part under placements `to`, without Partials, of a tensor of which `local` is this rank's box of pieces.
at::Tensor out_of_boxes(const HeldBoxes& held, const at::Tensor& local, const Placements& to,
                        const OutOfBoxes& options = {});
/// The whole DTensor with placements `to`, on its own mesh.
at::Tensor ordinary(const at::Tensor& tensor, const Placements& to, const OutOfBoxes& options = {});

/// This rank's pieces of a DTensor on the same mesh, whatever it lies in, by one exchange. Dims of one row stand for
/// all rows, and missing ones on the left too, as in broadcasting.
std::vector<at::Tensor> pieces_in_boxes(const char* operation, const at::Tensor& dtensor, const HeldBoxes& held);

/// A DTensor, on any mesh, in the boxes of `spec`; itself where it lies there.
at::Tensor brought_to_boxes(const at::Tensor& dtensor, const SpecPtr& spec);

/// A DTensor of these pieces, one per box.
at::Tensor wrap_in_boxes(const HeldBoxesPtr& held, std::vector<at::Tensor> pieces, c10::ScalarType dtype,
                         c10::Device device);

}  // namespace sherd::detail
