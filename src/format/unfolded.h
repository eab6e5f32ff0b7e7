#pragma once
// Containers that stand in a value many times are one in its pickle, and tensors may have elements that lie on top of
// each other. Who makes something of every part of a value asks first how much that is.

#include <string_view>

#include "format/value.h"

namespace sherd::format {

/// Whether a value takes over 1 GiB (kMostUnfolded) more where each of its parts is made as often as it stands there
/// than where each is made once: of tensors' elements, what is stored of them. Its cost is that of the value as it is.
bool unfolds_too_far(const Value& value);
/// Throws std::invalid_argument where it does; `name` is a fact of the error.
void check_unfolded(const Value& value, std::string_view operation, std::string_view name);

}  // namespace sherd::format
