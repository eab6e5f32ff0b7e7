#include "tensor/leaf_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
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

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;
using HookList = decltype(torch::autograd::AutogradMeta::cpp_hooks_list_);

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

template <class Hook>
void register_beside_others(const at::Tensor& tensor, const Hook& hook) {
  auto* autograd = torch::autograd::impl::materialize_autograd_meta(tensor);
  auto others = std::exchange(autograd->hooks_, {});
  if (autograd->cpp_hooks_list_) autograd->hooks_ = std::exchange(others, {});  // nothing is cleared any more
  static_cast<const at::TensorBase&>(tensor).register_hook(hook);
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

void register_leaf_hook(const at::Tensor& leaf, std::function<at::Tensor(const at::Tensor&)> hook) {
  register_beside_others(
      leaf, [hook = std::move(hook)](const at::TensorBase& grad) { return at::TensorBase(hook(at::Tensor(grad))); });
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
  auto* autograd = torch::autograd::impl::get_autograd_meta(leaf);
  auto& hooks = autograd->hooks_;
  if ((!hooks.empty() && runs_cpp_hooks(*hooks.front())) || !autograd->cpp_hooks_list_) return;
  hooks.insert(hooks.begin(), std::make_unique<CppHooks>(autograd->cpp_hooks_list_));
}

}  // namespace sherd::detail
