#pragma once

#include <ATen/core/Tensor.h>

#include "comm/call.h"
#include "sherd/collectives.h"
#include "sherd/group.h"

namespace sherd::detail {

/// Tells this thread's CommRecorder, if any, of a call. `in` may be undefined; `received` elements come from others.
void record(const Group& group, Collective kind, const at::Tensor& in, int64_t received);
/// The same for a call that another thread made for this one.
void record(CollectiveCall call);

}  // namespace sherd::detail
