#pragma once
// A value inside of a pickle that someone else writes.

#include <cstdint>
#include <functional>
#include <string>

#include "format/value.h"

namespace sherd::format {

struct PickledPart {
  int protocol = 2;   // of the whole: up to 2, Python's own functions have their names of Python 2
  uint64_t memo = 0;  // the first index that is free; afterwards again
};

/// Appends the opcodes that leave `value` on the stack. Throws as pickle does.
void append_pickled(std::string& out, const Value& value, PickledPart& part,
                    const std::function<void(const TensorRef&)>& on_tensor = {});

}  // namespace sherd::format
