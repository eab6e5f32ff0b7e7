#pragma once
// Layouts drawn: which rank holds which part of a tensor, as text for a terminal, as SVG, or as a page of HTML.
// docs/pictures.md shows them all. visualize_sharding (sherd/visualize.h) draws a tensor at hand.
//
//   [8@dp, 6@tp] on [dp=2, tp=2]
//     0   3   6
//   0 ┌───┬───┐
//     │ 0 │ 1 │
//   4 ├───┼───┤
//     │ 2 │ 3 │
//   8 └───┴───┘
//
// A cell says the ranks that hold it: "0,1" or "0-3" hold copies; "0+4" hold terms, of which a Partial is the sum (or
// another reduction); "0,2..126" are 0, 2, 4 and so on.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sherd/layout.h"

namespace sherd {

/// A tensor whose parts are named one by one, for want of a formula: the shards of a ShardedTensor, say. Parts may
/// leave holes, and several may hold the same.
struct BoxPicture {
  struct Part {
    std::string holder;  // "0": a rank, or another word for who holds it
    Box box;
  };
  std::string caption = {};
  Dims shape = {};
  std::vector<Part> parts = {};
  std::vector<std::string> notes = {};  // lines below the picture
  bool holders_are_ranks = true;
};

struct TextOptions {
  bool color = false;       // ANSI colours: one per shard
  int64_t max_width = 100;  // characters; columns of cells that do not fit are left out and counted, down to three
  int64_t max_rows = 16;    // rows of cells
  bool legend = false;      // what each mesh axis does, and which part each rank has
  int64_t max_slabs = 4;    // of a tensor that is cut in three dims
  std::vector<std::string> notes = {};  // lines to add below the picture
};

/// The layout as a grid of cells, each labelled with the ranks that hold it, with row and column offsets at the
/// borders. A tensor of more than two dims is drawn by the largest of its sharded dims: by two, or, where three or more
/// are sharded, by three, as slabs one below the other. Expects checked placements. The cost does not grow with the
/// number of rows; a mesh of thousands of ranks takes about a millisecond.
std::string draw_text(const Layout& layout, const TextOptions& options = {});
/// Throws std::invalid_argument where a box is not inside the shape.
std::string draw_text(const BoxPicture& picture, const TextOptions& options = {});

struct SvgOptions {
  int64_t width = 640;                  // pixels
  int64_t max_cells = 32;               // per dim; the others are left out, and counted
  bool legend = true;                   // what each mesh axis does, and which part each rank has
  std::vector<std::string> notes = {};  // lines to add below the picture
};

/// The same picture to scale, as an SVG element that stands alone or inside a page. Partials are hatched, slabs are
/// drawn as such. Text takes the page's colour; in a file of its own it is dark, or light where the reader prefers dark
/// pages.
std::string draw_svg(const Layout& layout, const SvgOptions& options = {});
std::string draw_svg(const BoxPicture& picture, const SvgOptions& options = {});

struct TitledLayout {
  std::string title;
  Layout layout;
};
struct TitledSvg {
  std::string title;
  std::string svg;
};

/// A page that needs no other file: one titled SVG after another.
std::string draw_html(std::span<const TitledLayout> pictures, const SvgOptions& options = {});
std::string draw_html(std::span<const TitledSvg> pictures);

}  // namespace sherd
