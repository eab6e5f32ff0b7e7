#pragma once
// torch's element types and those of files.

#include <c10/core/ScalarType.h>

#include "format/dtype.h"

namespace sherd::detail {

/// Throws c10::ValueError "<operation>: ..." for a type that no file has: quantized ones.
format::DType to_format(const char* operation, c10::ScalarType type);
c10::ScalarType to_torch(format::DType type);

}  // namespace sherd::detail
