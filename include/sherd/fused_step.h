#pragma once
// An optimizer's step in one kernel for many parameters, as Python's `fused=True`; libtorch's own C++ optimizers take a
// dozen for each.

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace sherd {

/// Does what `optimizer.step()` does: the same update of parameters and state, so that either may follow the other, and
/// checkpoints do not differ. Parameters may be plain tensors and DTensors of any placements; nothing is sent.
///
///   loss.backward();
///   sherd::fused_step(optimizer);
///
/// Adam, AdamW and SGD have such kernels, for real parameters and dense gradients on CPUs and GPUs, and one call takes
/// all parameters of a group with the same device and dtype. Whatever else there is steps by itself.
///
/// Returns whether kernels were fused: false where it called `optimizer.step()`.
bool fused_step(torch::optim::Optimizer& optimizer);

}  // namespace sherd
