#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/call.h"
#include "comm/observer.h"
#include "sherd/collectives.h"
#include "sherd/group.h"

namespace sherd::detail {

/// A call that begins, as it is told to those who keep or watch calls.
struct Recorded {
  std::shared_ptr<CommSpan> span = {};  // where somebody watches
  int64_t bytes = 0;                    // that this rank receives from others
};

/// Tells this thread's CommRecorder and CommObserver, if any, of a call. `in` may be undefined; `received` elements
/// come from others.
Recorded record(const Group& group, Collective kind, const at::Tensor& in, int64_t received);
/// The same for a call that another thread made for this one.
void record(CollectiveCall call);

}  // namespace sherd::detail
