#include "tensor/leaf_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <iterator>
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

}  // namespace

void register_leaf_hook(const at::Tensor& leaf, std::function<at::Tensor(const at::Tensor&)> hook) {
  auto* autograd = torch::autograd::impl::materialize_autograd_meta(leaf);
  auto others = std::exchange(autograd->hooks_, {});
  if (autograd->cpp_hooks_list_) autograd->hooks_ = std::exchange(others, {});  // nothing is cleared any more
  leaf.register_hook([hook = std::move(hook)](const at::Tensor& grad) { return hook(grad); });
  std::move(others.begin(), others.end(), std::back_inserter(autograd->hooks_));
  keep_leaf_hooks(leaf);
}

void keep_leaf_hooks(const at::Tensor& leaf) {
  auto* autograd = torch::autograd::impl::get_autograd_meta(leaf);
  auto& hooks = autograd->hooks_;
  if ((!hooks.empty() && runs_cpp_hooks(*hooks.front())) || !autograd->cpp_hooks_list_) return;
  hooks.insert(hooks.begin(), std::make_unique<CppHooks>(autograd->cpp_hooks_list_));
}

}  // namespace sherd::detail
