#pragma once
// What the drawings share: a tensor as slabs, rows and columns of cells, and what is to be said beside them. Where the
// cells come from, a layout or boxes, is known below; how they look, in text.cpp and svg.cpp.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "picture/bands.h"
#include "sherd/layout.h"
#include "sherd/picture.h"

namespace sherd::detail {

struct Cell {
  std::string label;        // "0-3", "0+4"; "..." in a gap; empty where nobody is known to hold it
  size_t color = 0;         // the same for the same ranks
  int64_t region = -1;      // neighbours of one region are drawn as one; -1: a region of its own
  bool is_gap = false;      // stands for what is left out
  bool is_partial = false;  // its ranks hold terms of the value
  bool is_hole = false;     // nobody is known to hold it

  bool joins(const Cell& other) const { return region >= 0 && region == other.region; }
};

/// As much of a tensor as one picture shows. A tensor that is cut in fewer than three dims is one slab.
struct Sheet {
  std::vector<Band> slabs, rows, columns;
  std::vector<std::vector<std::vector<Cell>>> cells;  // of a slab, a row, a column
};

/// Cells of a slab that are drawn as one: rows top to bottom, columns left to right, both ends included.
struct Region {
  size_t top = 0, left = 0, bottom = 0, right = 0;
  const Cell* cell = nullptr;  // one of them
  bool has_label = true;
};
/// All of a slab. Neighbours that join but make no rectangle are one each, the first with the label.
std::vector<Region> regions_of(const std::vector<std::vector<Cell>>& cells);

/// "rank 0: [0:4, 0:3]" beside its colour.
struct LegendLine {
  size_t color = 0;
  bool is_partial = false;
  std::string text;
};

/// The dims that are drawn; -1 where there is none.
struct DrawnDims {
  int64_t slab = -1, row = -1, column = -1;
};
/// One or two dims are all drawn. Of more, the three largest that are cut; where fewer are cut, two dims.
DrawnDims drawn_dims(const Dims& shape, const std::vector<bool>& is_cut);

class Grid {
 public:
  virtual ~Grid() = default;
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  /// "[8@dp, 6@tp] on [dp=2, tp=2]".
  virtual std::string caption() const = 0;
  const Dims& shape() const { return shape_; }
  /// False where the tensor has no element: there is nothing to draw but the notes.
  bool has_cells() const { return numel(shape_) > 0; }
  const Bands& slabs() const { return slabs_; }
  const Bands& rows() const { return rows_; }
  const Bands& columns() const { return columns_; }

  Sheet sheet(int64_t max_slabs, int64_t max_rows, int64_t max_columns) const;
  /// The lines below the picture: Partials, dims that are not drawn, ranks that hold nothing, bands left out.
  std::vector<std::string> notes(const Sheet& sheet) const;
  /// What each mesh axis does to the tensor; empty where that is all said by now.
  virtual std::vector<std::string> axis_lines() const { return {}; }
  /// One line per colour, up to a few, and how many there are beside them.
  struct Legend {
    std::vector<LegendLine> lines;
    size_t left_out = 0;
  };
  Legend legend(const Sheet& sheet) const;

 protected:
  Grid(Dims shape, Bands slabs, Bands rows, Bands columns)
      : shape_(std::move(shape)), slabs_(std::move(slabs)), rows_(std::move(rows)), columns_(std::move(columns)) {}

  /// Sets label, region and kind of every cell that is no gap.
  virtual void fill(Sheet& sheet) const = 0;
  virtual std::vector<std::string> first_notes() const = 0;
  virtual std::vector<std::string> last_notes() const = 0;
  /// What the ranks of a label hold, for the legend.
  virtual std::string held_by(const std::string& label) const = 0;
  /// "dims 1 (down) and 2 (across) of 4 are drawn"; empty where all are.
  std::string dims_note() const;
  bool is_drawn(int64_t dim) const { return dim == slabs_.dim() || dim == rows_.dim() || dim == columns_.dim(); }

 private:
  const Dims shape_;
  const Bands slabs_, rows_, columns_;
};

/// A tensor that placements cut.
class LayoutGrid final : public Grid {
 public:
  /// Keeps up to `kept` bands per dim.
  LayoutGrid(const Layout& layout, int64_t kept);

  std::string caption() const override;
  std::vector<std::string> axis_lines() const override;

 protected:
  void fill(Sheet& sheet) const override;
  std::vector<std::string> first_notes() const override;
  std::vector<std::string> last_notes() const override;
  std::string held_by(const std::string& label) const override;

 private:
  LayoutGrid(const Layout& layout, const DrawnDims& dims, int64_t kept);
  std::string label_of(const Dims& coordinate) const;

  const Layout& layout_;
  mutable std::map<std::string, Dims> holders_;  // a coordinate of each label that was drawn
};

/// A tensor in boxes.
class BoxGrid final : public Grid {
 public:
  BoxGrid(const BoxPicture& picture, int64_t kept);

  std::string caption() const override { return picture_.caption; }

 protected:
  void fill(Sheet& sheet) const override;
  std::vector<std::string> first_notes() const override;
  std::vector<std::string> last_notes() const override { return picture_.notes; }
  std::string held_by(const std::string& label) const override;

 private:
  BoxGrid(const BoxPicture& picture, const std::vector<bool>& is_cut, const DrawnDims& dims, int64_t kept);

  const BoxPicture& picture_;
  const std::vector<bool> is_cut_;
};

/// Throws std::invalid_argument "<operation>: a box is not inside the tensor".
void check_inside(const char* operation, const BoxPicture& picture);

/// Ranks in ascending order as "0,1", "0-3", "0,4,8", "0,4..60"; after ".." stands the last of them.
std::string rank_label(const std::vector<int64_t>& ranks);

/// "0, 1 and 2".
std::string and_list(const std::vector<std::string>& words);

}  // namespace sherd::detail
