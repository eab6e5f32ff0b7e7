#pragma once
// A value inside of a pickle that someone else writes.

#include <cstdint>
#include <functional>
#include <string>

#include "format/value.h"

namespace sherd::format {

/// Appends the opcodes that leave `value` on the stack. The memo is used from `memo` on; returns the first index that
/// is free again. Throws as pickle does.
uint64_t append_pickled(std::string& out, const Value& value, uint64_t memo,
                        const std::function<void(const TensorRef&)>& on_tensor = {});

}  // namespace sherd::format
