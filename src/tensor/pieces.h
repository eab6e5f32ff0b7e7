#pragma once
// A dim of a DTensor that several ranks hold in pieces, one range of rows each, in the order of their places along the
// axes that cut it: what rewrites go by that work on the parts and exchange only a few rows.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "plan/pieces.h"
#include "sherd/group.h"
#include "tensor/meta.h"

namespace sherd::detail {

using plan::Rows;
using plan::WantedRows;

class Pieces {
 public:
  /// Nothing where no more than one rank holds parts of the dim, or a rank holds several ranges of it.
  static std::optional<Pieces> of(const at::Tensor& tensor, int64_t dim);
  /// The pieces of a dim of a tensor that would have these placements and sizes.
  static std::optional<Pieces> of(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, int64_t dim);

  /// The pieces of a dim whose rows have been found already.
  Pieces(const DeviceMesh& mesh, plan::PieceRows rows);

  size_t count() const { return rows_.count(); }
  const Rows& operator[](size_t piece) const { return rows_[piece]; }
  const plan::PieceRows& rows() const { return rows_; }
  /// This rank's piece. A rank outside the mesh stands for the first and computes on zeros that nobody sees.
  size_t here() const { return here_; }
  const Rows& mine() const { return rows_[here_]; }
  int64_t dim() const { return rows_.dim; }

  /// The parts of all pieces, equal in shape, one after the other along the dim. Every rank of the mesh calls it.
  at::Tensor gather(const at::Tensor& part) const;

  /// This rank's part of a tensor becomes the rows that it wants. Every rank of the mesh calls it; each receives only
  /// rows that it wants and does not have.
  at::Tensor exchange(const at::Tensor& part, const WantedRows& wanted) const;

  /// The other way round: each rank has something for the rows that it wanted, and these go back to their owners, where
  /// they are added up.
  at::Tensor give_back(const at::Tensor& part, const WantedRows& wanted) const;

  /// Rows of a vector, or of a tensor cut along its first dim, in the order of the pieces that they go to: `gives[i]`
  /// go to piece i, `takes[i]` come from there. Returns what came, in the order of the pieces.
  at::Tensor deal(const at::Tensor& part, const std::vector<int64_t>& gives, const std::vector<int64_t>& takes) const;

  /// `placements` with the dim cut so that piece i has sizes[i] rows.
  Placements placements_for(Placements placements, const std::vector<int64_t>& sizes) const;

 private:
  Group group() const;
  // Rows of `width` elements: the first gives[0] of `flat` go to piece 0, and so on; takes[i] come from piece i.
  at::Tensor swapped(const at::Tensor& flat, const std::vector<int64_t>& gives, const std::vector<int64_t>& takes,
                     int64_t width) const;
  // Throws where data must not move by itself.
  void check_exchange() const;

  DeviceMesh mesh_;
  plan::PieceRows rows_;
  Dims coordinate_;  // this rank's, or that of the first
  size_t here_ = 0;
};

/// To be called before a rewrite moves data by itself: throws or warns where the thread asked for that. `instead`: how
/// to redistribute the operand beforehand.
void check_rewritten(const std::string& what, const std::string& instead);

/// This rank's part of a DTensor; zeros on a rank outside the mesh.
at::Tensor part_of(const at::Tensor& tensor);

/// A DTensor of the parts that the ranks have computed; all have the same strides, those of a contiguous tensor.
at::Tensor from_parts(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const at::Tensor& part);

/// The tensor with these placements; a plain tensor counts as whole.
at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements);

/// The tensor with its Partials reduced.
at::Tensor reduced(const at::Tensor& tensor);

}  // namespace sherd::detail
