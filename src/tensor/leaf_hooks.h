#pragma once
// Hooks on leaves beside those of a program. torch keeps hooks of C++ and of Python in one list, and clears it when the
// first of either kind is registered.

#include <ATen/core/Tensor.h>

#include <functional>

namespace sherd::detail {

/// As leaf.register_hook(hook), and hooks that Python registered stay, behind those of C++: they see what these return.
void register_leaf_hook(const at::Tensor& leaf, std::function<at::Tensor(const at::Tensor&)> hook);

/// The same for a hook that a tensor, a leaf or not, needs once: nothing where it has it.
using GradientHook = at::TensorBase (*)(const at::TensorBase& grad);
void register_hook_once(const at::Tensor& tensor, GradientHook hook);

/// Puts hooks of C++ back that the first one of Python cleared.
void keep_leaf_hooks(const at::Tensor& leaf);

}  // namespace sherd::detail
