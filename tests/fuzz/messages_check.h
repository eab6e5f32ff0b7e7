#pragma once
// What ranks tell each other is read in rooms that throw c10's errors. Here it is read without libtorch.

#include <stdexcept>

#include "comm/errors.h"
#include "fuzz/format_check.h"

namespace sherd::detail {

void throw_value_error(const ErrorText& text) { throw std::invalid_argument(text.str()); }

}  // namespace sherd::detail
