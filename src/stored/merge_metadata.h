#pragma once
#include <string>

#include "format/dcp.h"

namespace sherd::stored {

/// Adds what another rank wrote for itself of the same checkpoint: chunks that are there already were written twice.
/// Throws std::invalid_argument where both tell different things of one tensor.
void merge_metadata(format::Metadata& into, const format::Metadata& other, const std::string& operation);

}  // namespace sherd::stored
