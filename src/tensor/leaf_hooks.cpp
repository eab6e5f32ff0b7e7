#include "tensor/leaf_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace sherd::detail {
namespace {

using torch::autograd::AutogradMeta;
using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;
using HookList = decltype(AutogradMeta::cpp_hooks_list_);

// Runs the hooks of C++, as torch's own class does, which cannot be used from outside.
struct CppHooks final : FunctionPreHook {
  explicit CppHooks(HookList all) : hooks(std::move(all)) {}
  variable_list operator()(const variable_list& grads) override {
    variable_list results = grads;
    for (const auto& hook : *hooks) {
      if (!hook) continue;
      if (const at::TensorBase changed = hook(results[0]); changed.defined()) results[0] = at::Tensor(changed);
    }
    return results;
  }
  HookList hooks;
};

// Asked for a leaf whenever it is used.
bool runs_cpp_hooks(const FunctionPreHook& hook) {
  static std::atomic<const std::type_info*> torchs_own = nullptr;
  const std::type_info* type = &typeid(hook);
  if (type == torchs_own.load(std::memory_order_relaxed) || *type == typeid(CppHooks)) return true;
  if (std::string_view(type->name()).find("CppFunctionTensorPreHook") == std::string_view::npos) return false;
  torchs_own.store(type, std::memory_order_relaxed);
  return true;
}

bool are_cleared(const AutogradMeta& leaf) {
  return leaf.cpp_hooks_list_ && (leaf.hooks_.empty() || !runs_cpp_hooks(*leaf.hooks_.front()));
}

// Behind all hooks of a leaf, where its gradient is accumulated. That node holds the leaf, and is held by what was made
// of the leaf.
struct IfCleared final : FunctionPreHook {
  explicit IfCleared(const AutogradMeta* of) : leaf(of) {}
  variable_list operator()(const variable_list& grads) override {
    return are_cleared(*leaf) ? CppHooks(leaf->cpp_hooks_list_)(grads) : grads;
  }
  const AutogradMeta* leaf;
};

void keep_until_backward(const AutogradMeta& leaf) {
  const auto accumulates = leaf.grad_accumulator_.lock();
  if (!accumulates || !accumulates->retains_grad_hooks().empty()) return;
  accumulates->add_retains_grad_hook(std::make_unique<IfCleared>(&leaf), 0);
}

template <class Hook>
void register_beside_others(const at::Tensor& tensor, Hook hook) {
  auto* autograd = torch::autograd::impl::materialize_autograd_meta(tensor);
  auto others = std::exchange(autograd->hooks_, {});
  if (autograd->cpp_hooks_list_) autograd->hooks_ = std::exchange(others, {});  // nothing is cleared any more
  static_cast<const at::TensorBase&>(tensor).register_hook(std::move(hook));
  std::move(others.begin(), others.end(), std::back_inserter(autograd->hooks_));
  keep_leaf_hooks(tensor);
}

bool has_hook(const HookList& hooks, GradientHook wanted) {
  if (!hooks) return false;
  return std::any_of(hooks->begin(), hooks->end(), [&](const auto& hook) {
    const auto* known = hook.template target<GradientHook>();
    return known != nullptr && *known == wanted;
  });
}

}  // namespace

void register_leaf_hook(const at::Tensor& leaf, LeafHook hook) {
  // A leaf that is given other data again and again has a hook for each; torch keeps them all.
  if (const auto& hooks = torch::autograd::impl::materialize_autograd_meta(leaf)->cpp_hooks_list_) {
    for (auto& other : *hooks) {
      const auto* known = other.target<LeafHook>();
      if (known == nullptr || !known->is_over || !known->is_over()) continue;
      other = std::move(hook);
      keep_leaf_hooks(leaf);
      return;
    }
  }
  register_beside_others(leaf, std::move(hook));
}

void register_hook_once(const at::Tensor& tensor, GradientHook hook) {
  // Ranks that are threads may have a plain tensor in common.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (has_hook(torch::autograd::impl::materialize_autograd_meta(tensor)->cpp_hooks_list_, hook)) {
    keep_leaf_hooks(tensor);
  } else {
    register_beside_others(tensor, hook);
  }
}

void keep_leaf_hooks(const at::Tensor& leaf) {
  AutogradMeta* autograd = torch::autograd::impl::get_autograd_meta(leaf);
  keep_until_backward(*autograd);
  // In a backward pass it may be one of these hooks that uses the leaf: torch walks along the list meanwhile.
  if (!are_cleared(*autograd) || torch::autograd::get_current_graph_task_id() != -1) return;
  auto& hooks = autograd->hooks_;
  hooks.insert(hooks.begin(), std::make_unique<CppHooks>(autograd->cpp_hooks_list_));
}

}  // namespace sherd::detail
