#pragma once

#include <ATen/record_function.h>

namespace sherd::detail {

/// The arguments of an operator, for a callback that hears of its beginning.
c10::ArrayRef<const c10::IValue> recorded_inputs(const at::RecordFunction& fn);

}  // namespace sherd::detail
