#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "picture/grid.h"
#include "sherd/error.h"

namespace sherd::detail {
namespace {

constexpr size_t kMaxNames = 3;  // of those who hold a cell

std::vector<bool> cut_dims(const BoxPicture& picture) {
  std::vector<bool> is_cut(picture.shape.size(), false);
  for (const auto& part : picture.parts)
    for (size_t d = 0; d < is_cut.size(); ++d)
      if (numel(part.box) > 0 && part.box.size[d] != picture.shape[d]) is_cut[d] = true;
  return is_cut;
}

Bands bands_of(const BoxPicture& picture, int64_t dim, int64_t kept) {
  if (dim < 0) return {{0, 1}, -1, kept};
  const auto d = static_cast<size_t>(dim);
  std::set<int64_t> cuts = {0, picture.shape[d]};
  for (const auto& part : picture.parts)
    if (numel(part.box) > 0) cuts.insert({part.box.offset[d], part.box.offset[d] + part.box.size[d]});
  return {std::vector<int64_t>(cuts.begin(), cuts.end()), dim, kept};
}

// The bands, gaps apart, that a box has in one dim: [first, last).
std::pair<size_t, size_t> bands_in(const std::vector<Band>& bands, int64_t dim, const Box& box) {
  if (dim < 0) return {0, 1};
  const int64_t begin = box.offset[static_cast<size_t>(dim)], end = begin + box.size[static_cast<size_t>(dim)];
  const auto first =
      std::partition_point(bands.begin(), bands.end(), [&](const Band& band) { return band.end <= begin; });
  const auto last = std::partition_point(first, bands.end(), [&](const Band& band) { return band.begin < end; });
  return {static_cast<size_t>(first - bands.begin()), static_cast<size_t>(last - bands.begin())};
}

}  // namespace

void check_inside(const char* operation, const BoxPicture& picture) {
  const Box whole{Dims(picture.shape.size(), 0), picture.shape};
  for (const auto& part : picture.parts) {
    const bool has_dims =
        part.box.offset.size() == picture.shape.size() && part.box.size.size() == picture.shape.size();
    if (has_dims && contains(whole, part.box)) continue;
    throw std::invalid_argument(ErrorText(operation, "a box is not inside the tensor")
                                    .fact("box", to_string(part.box))
                                    .fact("held by", part.holder)
                                    .fact("tensor", to_string(picture.shape))
                                    .help("BoxPicture::shape is the size of the whole tensor"));
  }
}

BoxGrid::BoxGrid(const BoxPicture& picture, int64_t kept)
    : BoxGrid(picture, cut_dims(picture), drawn_dims(picture.shape, cut_dims(picture)), kept) {}

BoxGrid::BoxGrid(const BoxPicture& picture, const std::vector<bool>& is_cut, const DrawnDims& dims, int64_t kept)
    : Grid(picture.shape, bands_of(picture, dims.slab, kept), bands_of(picture, dims.row, kept),
           bands_of(picture, dims.column, kept)),
      picture_(picture),
      is_cut_(is_cut) {}

void BoxGrid::fill(Sheet& sheet) const {
  using Holders = std::vector<size_t>;  // parts
  std::vector<std::vector<std::vector<Holders>>> holders(
      sheet.slabs.size(), {sheet.rows.size(), std::vector<Holders>(sheet.columns.size())});
  for (size_t i = 0; i < picture_.parts.size(); ++i) {
    const Box& box = picture_.parts[i].box;
    if (numel(box) == 0) continue;
    const auto slabs_of = bands_in(sheet.slabs, slabs().dim(), box);
    const auto rows_of = bands_in(sheet.rows, rows().dim(), box);
    const auto columns_of = bands_in(sheet.columns, columns().dim(), box);
    for (size_t s = slabs_of.first; s < slabs_of.second; ++s)
      for (size_t r = rows_of.first; r < rows_of.second; ++r)
        for (size_t c = columns_of.first; c < columns_of.second; ++c) holders[s][r][c].push_back(i);
  }
  std::map<Holders, int64_t> regions = {{{}, 0}};
  for (size_t s = 0; s < sheet.slabs.size(); ++s)
    for (size_t r = 0; r < sheet.rows.size(); ++r)
      for (size_t c = 0; c < sheet.columns.size(); ++c) {
        Cell& cell = sheet.cells[s][r][c];
        if (cell.is_gap) continue;
        const Holders& here = holders[s][r][c];
        cell.is_hole = here.empty();
        cell.region = regions.emplace(here, static_cast<int64_t>(regions.size())).first->second;
        std::vector<std::string> names;
        for (const size_t part : here)
          if (std::find(names.begin(), names.end(), picture_.parts[part].holder) == names.end())
            names.push_back(picture_.parts[part].holder);
        for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) cell.label += (i ? "," : "") + names[i];
        if (names.size() > kMaxNames) cell.label += ".." + names.back();
      }
}

std::vector<std::string> BoxGrid::first_notes() const {
  std::vector<std::string> notes;
  std::string dims = dims_note();
  if (dims.empty()) return notes;
  notes.push_back(std::move(dims));
  for (size_t d = 0; d < shape().size(); ++d)
    if (is_cut_[d] && !is_drawn(static_cast<int64_t>(d)))
      notes.push_back(fmt::format("dim {} is cut, too: those who share a cell hold different parts of it", d));
  return notes;
}

std::string BoxGrid::held_by(const std::string& label) const {
  std::string text = label + ":";
  size_t count = 0;
  for (const auto& part : picture_.parts) {
    if (part.holder != label || numel(part.box) == 0) continue;
    if (++count <= 2) text += " " + to_string(part.box);
  }
  if (count == 0) return label;  // of several
  if (count > 2) text += fmt::format(" and {} more", count - 2);
  return picture_.holders_are_ranks ? "rank " + text : text;
}

}  // namespace sherd::detail
