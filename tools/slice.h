#pragma once
// A part of a tensor on the command line, as in Python: "0:10, -1".

#include <string>

#include "sherd/box.h"

namespace sherd::tools {

struct Slice {
  Box box;
  Dims shown;  // the sizes of the result: dims with one place alone are left out
};

/// "0:10, :, -1" or "[0:10, :, -1]": per dim a range, a place, or all; "..." for all dims that are not named, which are
/// otherwise the last ones; ends beyond the tensor are cut. Empty: everything. Throws std::invalid_argument "<verb>:
/// ...".
Slice parse_slice(const std::string& verb, const std::string& text, const Dims& size);

}  // namespace sherd::tools
