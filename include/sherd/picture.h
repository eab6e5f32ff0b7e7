#pragma once
// Layouts drawn: which rank holds which part of a tensor, as text for a terminal, as SVG, or as a page of HTML.
//
//   [8@dp, 6@tp] on [dp=2, tp=2]
//     0   3   6
//   0 ┌───┬───┐
//     │ 0 │ 1 │
//   4 ├───┼───┤
//     │ 2 │ 3 │
//   8 └───┴───┘

#include <cstdint>
#include <span>
#include <string>

#include "sherd/layout.h"

namespace sherd {

struct TextOptions {
  bool color = false;       // ANSI colours: one per shard
  int64_t max_width = 100;  // characters; columns of cells that do not fit are left out and counted, down to three
  int64_t max_rows = 16;    // rows of cells
};

/// The layout as a grid of cells, each labelled with the ranks that hold it, with row and column offsets at the
/// borders. A tensor of more than two dims is drawn by the two largest of its sharded dims. Expects checked placements.
/// The cost does not grow with the number of rows; a mesh of thousands of ranks takes about a millisecond.
std::string draw_text(const Layout& layout, const TextOptions& options = {});

struct SvgOptions {
  int64_t width = 640;     // pixels
  int64_t max_cells = 32;  // per dim; the others are left out, and counted
};

/// The same picture to scale, as an SVG element that stands alone or inside a page.
std::string draw_svg(const Layout& layout, const SvgOptions& options = {});

struct TitledLayout {
  std::string title;
  Layout layout;
};

/// A page that needs no other file: one titled SVG after another.
std::string draw_html(std::span<const TitledLayout> pictures, const SvgOptions& options = {});

}  // namespace sherd
