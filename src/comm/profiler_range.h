#pragma once
// Ranges around collectives for torch's profilers: Kineto (torch.profiler, torch::profiler::impl) and, where a program
// asks for it (emit_nvtx), NVTX. Costs a few nanoseconds where no profiler listens.

#include <ATen/record_function.h>

#include <vector>

#include "comm/call.h"
#include "sherd/group.h"

namespace sherd::detail {

/// "sherd::all_gather@tp", with the mesh axis or the group, or "sherd::all_gather@tp wait" of a call that was started
/// before. Its input, which profilers show where they record shapes, is the bytes that this rank receives.
class CommRange {
 public:
  CommRange(const Group& group, Collective kind, int64_t bytes, bool waits = false);

 private:
  std::vector<c10::IValue> inputs_;  // profilers may look at them when the range ends
  at::RecordFunction range_;
};

}  // namespace sherd::detail
