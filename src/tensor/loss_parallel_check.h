#pragma once

#include "tensor/op_info.h"
#include "tensor/op_plan.h"

namespace sherd::detail {

/// Throws where this thread has a LossParallel scope and the operator is a loss that would gather classes.
void check_loss_parallel(const OpInfo& info, const OpPlan& plan);

}  // namespace sherd::detail
