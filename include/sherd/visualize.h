#pragma once
// A tensor at hand, drawn: which rank holds which part of it. docs/pictures.md shows what the pictures look like.
// Nothing here communicates: any rank may draw alone.
//
//   std::cout << sherd::visualize_sharding(x);              // in colour where that is a terminal
//   file << sherd::visualize_sharding_html(x);              // a page that needs no other file

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "sherd/picture.h"

namespace sherd {

struct VisualizeOptions {
  /// ANSI colours. Nothing: where standard output is a terminal, unless NO_COLOR is set (https://no-color.org) or TERM
  /// is "dumb".
  std::optional<bool> color = {};
  int64_t max_width = 100;  // characters
  int64_t max_rows = 16;    // of cells
  bool legend = true;       // what each mesh axis does, and which part each rank has
};

/// Any tensor: a DTensor, a ShardedTensor, a LocalShardsWrapper or a DTensor of such (this rank's boxes: others are not
/// known without asking them), or a plain tensor, of which this process has all. On a rank outside the mesh too, with
/// a line that says so. Throw c10::ValueError for an undefined tensor.
std::string visualize_sharding(const at::Tensor& tensor, const VisualizeOptions& options = {});
std::string visualize_sharding_svg(const at::Tensor& tensor, const SvgOptions& options = {});
std::string visualize_sharding_html(const at::Tensor& tensor, const SvgOptions& options = {});

}  // namespace sherd
