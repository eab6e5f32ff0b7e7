#pragma once
// Hooks on leaves beside those of a program. torch keeps hooks of C++ and of Python in one list, and clears it when the
// first of either kind is registered.

#include <ATen/core/Tensor.h>

#include <functional>

namespace sherd::detail {

/// A hook of sherd's own on a leaf.
struct LeafHook {
  std::function<at::Tensor(const at::Tensor&)> run;
  std::function<bool()> is_over = {};  // whether it does nothing any more; none: never

  at::TensorBase operator()(const at::TensorBase& grad) const { return run(at::Tensor(grad)); }
};

/// As leaf.register_hook(hook), and hooks that Python registered stay, behind those of C++: they see what these return.
/// It takes the place of one that is over.
void register_leaf_hook(const at::Tensor& leaf, LeafHook hook);

/// The same for a hook that a tensor, a leaf or not, needs once: nothing where it has it.
using GradientHook = at::TensorBase (*)(const at::TensorBase& grad);
void register_hook_once(const at::Tensor& tensor, GradientHook hook);

/// Puts hooks of C++ back that the first one of Python cleared. To be called whenever the leaf is used: where Python's
/// comes after that, those of C++ run behind it in the backward pass of this use.
void keep_leaf_hooks(const at::Tensor& leaf);

}  // namespace sherd::detail
