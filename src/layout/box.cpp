#include "sherd/box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "layout/scanner.h"
#include "sherd/error.h"

namespace sherd {
namespace {

void check_same_ndim(std::string_view operation, const Box& a, const Box& b) {
  if (a.size.size() == b.size.size()) return;
  throw std::invalid_argument(ErrorText(operation, "boxes of different ndim")
                                  .fact("one", to_string(a))
                                  .fact("other", to_string(b))
                                  .help("compare boxes of one tensor"));
}

}  // namespace

int64_t numel(const Dims& shape) {
  int64_t product = 1;
  for (int64_t size : shape) {
    if (size == 0) return 0;
    product *= size;
  }
  return product;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  check_same_ndim("intersect", a, b);
  const size_t ndim = a.size.size();
  // Most pairs of boxes in a plan do not meet: find that out before anything is allocated.
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    if (begin >= end) return std::nullopt;
  }
  Box common{Dims(ndim), Dims(ndim)};
  for (size_t d = 0; d < ndim; ++d) {
    common.offset[d] = std::max(a.offset[d], b.offset[d]);
    common.size[d] = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]) - common.offset[d];
  }
  return common;
}

bool contains(const Box& outer, const Box& inner) {
  check_same_ndim("contains", outer, inner);
  bool inside = true;
  for (size_t d = 0; d < inner.size.size(); ++d) {
    if (inner.size[d] <= 0) return true;
    inside = inside && inner.offset[d] >= outer.offset[d] &&
             inner.offset[d] + inner.size[d] <= outer.offset[d] + outer.size[d];
  }
  return inside;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.size.size(); ++d)
    fmt::format_to(std::back_inserter(text), "{}{}:{}", d ? ", " : "", box.offset[d], box.offset[d] + box.size[d]);
  return text + "]";
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Box parse_box(std::string_view text) {
  detail::Scanner scan("parse_box", text, "[0:4, 2:6]");
  Box box;
  scan.expect('[');
  if (!scan.accept(']')) {
    do {
      const size_t place = scan.place();
      const int64_t begin = scan.number("where the box begins");
      scan.expect(':');
      const int64_t end = scan.number("where the box ends");
      int64_t size = 0;
      if (end < begin) scan.fail_at(place, "the box ends before it begins");
      if (__builtin_sub_overflow(end, begin, &size)) scan.fail_at(place, "the size does not fit in 64 bits");
      box.offset.push_back(begin);
      box.size.push_back(size);
    } while (scan.accept(','));
    scan.expect(']');
  }
  scan.expect_end();
  return box;
}

Dims parse_dims(std::string_view text) {
  detail::Scanner scan("parse_dims", text, "[4, 6]");
  Dims dims;
  scan.expect('[');
  if (!scan.accept(']')) {
    do dims.push_back(scan.number("a number"));
    while (scan.accept(','));
    scan.expect(']');
  }
  scan.expect_end();
  return dims;
}

}  // namespace sherd
