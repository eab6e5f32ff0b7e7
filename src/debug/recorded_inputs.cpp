// Compiled with NDEBUG, as the released libtorch is: without it, torch's header asks for a mark that only a libtorch
// built for debugging sets.

#include "debug/recorded_inputs.h"

namespace sherd::detail {

c10::ArrayRef<const c10::IValue> recorded_inputs(const at::RecordFunction& fn) { return fn.inputs(); }

}  // namespace sherd::detail
