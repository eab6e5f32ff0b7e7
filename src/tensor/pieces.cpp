#include "tensor/pieces.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "plan/redistribute.h"
#include "sherd/collectives.h"
#include "tensor/edges.h"
#include "tensor/redistributed.h"
#include "tensor/rewrites.h"
#include "tensor/switches.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using plan::both;
using plan::count_of;

Dims with_rows(const Tensor& part, int64_t dim, int64_t rows) {
  Dims sizes = part.sizes().vec();
  sizes[static_cast<size_t>(dim)] = rows;
  return sizes;
}

// Elements of one row.
int64_t width_of(const Tensor& part, int64_t dim) { return numel(with_rows(part, dim, 1)); }

std::vector<int64_t> times(std::vector<int64_t> rows, int64_t width) {
  for (int64_t& n : rows) n *= width;
  return rows;
}

// Blocks of rows, laid one after the other in memory.
Tensor packed(const std::vector<Tensor>& blocks, const Tensor& like) {
  int64_t total = 0;
  for (const Tensor& block : blocks) total += block.numel();
  Tensor buffer = at::empty({total}, like.options());
  int64_t at = 0;
  for (const Tensor& block : blocks) {
    buffer.narrow(0, at, block.numel()).view(block.sizes()).copy_(block);
    at += block.numel();
  }
  return buffer;
}

}  // namespace

std::optional<Pieces> Pieces::of(const Tensor& tensor, int64_t dim) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) return std::nullopt;
  return of(meta->spec->mesh, meta->spec->placements, meta->spec->sizes, dim);
}

std::optional<Pieces> Pieces::of(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, int64_t dim) {
  auto rows = plan::PieceRows::of({mesh.mesh(), sizes, placements}, dim);
  if (!rows) return std::nullopt;
  return Pieces(mesh, std::move(*rows));
}

Pieces::Pieces(const DeviceMesh& mesh, plan::PieceRows rows)
    : mesh_(mesh),
      rows_(std::move(rows)),
      coordinate_(mesh.coordinate().value_or(Dims(static_cast<size_t>(mesh.ndim()), 0))),
      here_(rows_.at(mesh.mesh(), coordinate_)) {}

Group Pieces::group() const {
  if (rows_.axes.size() == 1) return mesh_.group(rows_.axes[0]);
  std::vector<int64_t> ranks;
  for (const Dims& member : rows_.members(mesh_.mesh(), coordinate_)) ranks.push_back(mesh_.mesh().rank_at(member));
  return mesh_.world().group(ranks);
}

void Pieces::check_exchange() const {
  std::string axes;
  for (const int64_t axis : rows_.axes) axes += (axes.empty() ? "" : ", ") + mesh_.mesh().axis_label(axis);
  check_rewritten("rows of dim " + std::to_string(rows_.dim) + " are exchanged along " + axes,
                  "with dim " + std::to_string(rows_.dim) + " whole");
}

Tensor Pieces::gather(const Tensor& part) const {
  Dims sizes = part.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(count()));
  Tensor all = at::zeros(sizes, part.options());
  check_exchange();
  if (mesh_.coordinate() && part.numel() > 0) all_gather(group(), all.view(-1), part.contiguous().view(-1)).wait();
  return at::cat(all.unbind(0), rows_.dim);
}

Tensor Pieces::deal(const Tensor& part, const std::vector<int64_t>& gives, const std::vector<int64_t>& takes) const {
  check_exchange();
  int64_t total = 0;
  for (const int64_t n : takes) total += n;
  const Dims sizes = with_rows(part, 0, total);
  if (!mesh_.coordinate()) return at::zeros(sizes, part.options());
  return swapped(part.contiguous().view(-1), gives, takes, width_of(part, 0)).view(sizes);
}

Tensor Pieces::swapped(const Tensor& flat, const std::vector<int64_t>& gives, const std::vector<int64_t>& takes,
                       int64_t width) const {
  int64_t total = 0;
  for (const int64_t n : takes) total += n;
  Tensor received = at::empty({total * width}, flat.options());
  all_to_all(group(), received, flat, times(takes, width), times(gives, width)).wait();
  return received;
}

Placements Pieces::placements_for(Placements placements, const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> ends = {0};
  for (const int64_t n : sizes) ends.push_back(ends.back() + n);
  // Axes further right cut what the ones before them left.
  auto inner = static_cast<int64_t>(count());
  for (const int64_t axis : rows_.axes) {
    inner /= mesh_.size(axis);
    std::vector<int64_t> cuts;
    for (size_t i = 0; i < ends.size(); i += static_cast<size_t>(inner)) cuts.push_back(ends[i]);
    placements[static_cast<size_t>(axis)] = Ragged(rows_.dim, std::move(cuts));
  }
  return placements;
}

Tensor Pieces::exchange(const Tensor& part, const WantedRows& wanted) const {
  const int64_t width = width_of(part, rows_.dim);
  Tensor out = at::zeros(with_rows(part, rows_.dim, count_of(wanted[here_])), part.options());
  const bool moves = plan::moves_anything(rows_, wanted);
  if (moves) check_exchange();
  if (!mesh_.coordinate()) return out;
  if (!moves) {
    int64_t to = 0;
    for (const Rows& range : wanted[here_]) {
      if (range.size() == 0) continue;
      out.narrow(rows_.dim, to, range.size()).copy_(part.narrow(rows_.dim, range.begin - mine().begin, range.size()));
      to += range.size();
    }
    return out;
  }
  std::vector<Tensor> blocks;
  std::vector<int64_t> gives(count());
  std::vector<int64_t> takes(count());
  for (size_t p = 0; p < count(); ++p) {
    for (const Rows& range : wanted[p]) {
      const Rows rows = both(range, mine());
      if (rows.size() > 0) blocks.push_back(part.narrow(rows_.dim, rows.begin - mine().begin, rows.size()));
    }
    gives[p] = count_of(wanted[p], mine());
    takes[p] = count_of(wanted[here_], rows_[p]);
  }
  const Tensor received = swapped(packed(blocks, part), gives, takes, width);
  int64_t at = 0;
  for (size_t p = 0; p < count(); ++p) {
    int64_t to = 0;
    for (const Rows& range : wanted[here_]) {
      const Rows rows = both(range, rows_[p]);
      if (rows.size() > 0) {
        const Tensor target = out.narrow(rows_.dim, to + rows.begin - range.begin, rows.size());
        target.copy_(received.narrow(0, at, target.numel()).view(target.sizes()));
        at += target.numel();
      }
      to += range.size();
    }
  }
  return out;
}

Tensor Pieces::give_back(const Tensor& part, const WantedRows& wanted) const {
  const int64_t width = width_of(part, rows_.dim);
  Tensor out = at::zeros(with_rows(part, rows_.dim, mine().size()), part.options());
  const bool moves = plan::moves_anything(rows_, wanted);
  if (moves) check_exchange();
  if (!mesh_.coordinate()) return out;
  if (!moves) {
    int64_t from = 0;
    for (const Rows& range : wanted[here_]) {
      if (range.size() == 0) continue;
      out.narrow(rows_.dim, range.begin - mine().begin, range.size()).add_(part.narrow(rows_.dim, from, range.size()));
      from += range.size();
    }
    return out;
  }
  std::vector<Tensor> blocks;
  std::vector<int64_t> gives(count());
  std::vector<int64_t> takes(count());
  for (size_t p = 0; p < count(); ++p) {
    int64_t from = 0;
    for (const Rows& range : wanted[here_]) {
      const Rows rows = both(range, rows_[p]);
      if (rows.size() > 0) blocks.push_back(part.narrow(rows_.dim, from + rows.begin - range.begin, rows.size()));
      from += range.size();
    }
    gives[p] = count_of(wanted[here_], rows_[p]);
    takes[p] = count_of(wanted[p], mine());
  }
  const Tensor received = swapped(packed(blocks, part), gives, takes, width);
  int64_t at = 0;
  for (size_t p = 0; p < count(); ++p) {
    for (const Rows& range : wanted[p]) {
      const Rows rows = both(range, mine());
      if (rows.size() == 0) continue;
      Tensor target = out.narrow(rows_.dim, rows.begin - mine().begin, rows.size());
      target.add_(received.narrow(0, at, target.numel()).view(target.sizes()));
      at += target.numel();
    }
  }
  return out;
}

Tensor part_of(const Tensor& tensor) {
  DTensorMeta* meta = meta_of(tensor);
  if (meta->spec->mesh.coordinate()) return current_local(*meta).resolve_conj().resolve_neg();
  const Dims first(static_cast<size_t>(meta->spec->mesh.ndim()), 0);
  const Dims one(meta->spec->sizes.size(), 1);
  return at::zeros(one, meta->local.options()).expand(local_shape(meta->spec->layout(), first));
}

Tensor from_parts(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const Tensor& part) {
  const SpecPtr spec = intern_spec(mesh, placements, sizes, contiguous_strides(sizes));
  return wrap(spec, mesh.coordinate() ? part.contiguous() : at::empty({0}, part.options()));
}

Tensor placed(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr) {
    const Placements whole(placements.size(), Replicate());
    return redistributed(from_parts(mesh, whole, tensor.sizes().vec(), tensor), placements);
  }
  const Placements& now = meta->spec->placements;
  if (now == placements) return tensor;
  const auto size = static_cast<int64_t>(tensor.element_size());
  if (plan::plan_redistribution(mesh.mesh(), meta->spec->sizes, size, now, placements).bytes > 0) {
    check_rewritten(to_string(now) + " becomes " + to_string(placements), "to these");
  }
  return redistributed(tensor, placements);
}

void check_rewritten(const std::string& what, const std::string& instead) {
  check_explicit([&] {
    return would_move(operation_under_way(), {{"operand", what}},
                      "sherd::redistribute(operand, placements) " + instead + " first");
  });
}

Tensor reduced(const Tensor& tensor) {
  const DTensorMeta* meta = meta_of(tensor);
  if (meta == nullptr || !meta->spec->has_partial) return tensor;
  check_rewritten(to_string(meta->spec->placements) + " is reduced", "without Partial");
  return redistributed(tensor, grad_placements_for(meta->spec->placements));
}

}  // namespace sherd::detail
