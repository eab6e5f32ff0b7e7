#pragma once

#include <vector>

#include "sherd/module_outline.h"
#include "sherd/parallel.h"

namespace sherd::detail {

/// Makes the tensors of a module DTensors on `mesh`, in place: replicated, or as `partition` says. A tensor may come
/// under two names; undefined ones are left alone. Throws c10::ValueError, before anything changes, where one is
/// distributed already, or is to be placed in two ways.
void distribute_tensors(const char* operation, const std::vector<NamedTensor>& tensors, const DeviceMesh& mesh,
                        const PartitionFunction& partition);

}  // namespace sherd::detail
