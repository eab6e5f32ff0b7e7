#pragma once
// Elements of a tensor as numpy prints them.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "format/dtype.h"
#include "sherd/box.h"

namespace sherd::tools {

struct PrintOptions {
  int precision = 4;         // digits behind the point
  bool exact = false;        // as many as it takes to read back the same, instead
  int64_t threshold = 1000;  // more elements than this are shown by their ends alone
  int64_t ends = 3;          // that many of them in each dim
};

/// Gives the elements of a box, in row-major order.
using ReadBox = std::function<std::vector<std::byte>(const Box& box)>;

/// The elements of `box` as text, in brackets by `shown` (box's sizes without dims of one that are not to be shown).
/// Only what is shown is read.
std::string values_text(format::DType dtype, const Box& box, const Dims& shown, const ReadBox& read,
                        const PrintOptions& options);

}  // namespace sherd::tools
