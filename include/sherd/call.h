#pragma once
// Calling a module with what was asked of its inputs and outputs: distribute_module's input and output functions, and
// the styles of tensor_parallel.h that cannot ride on a parameter.
//
// forward of a C++ module is neither virtual nor hookable: module->forward(x), and a module called by its parent, know
// nothing of these. sherd::call(module, x) does.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace sherd {

namespace detail {

/// What comes in or goes out, in order; null for what is not a tensor.
using CallTensors = std::vector<at::Tensor*>;
void before_call(const torch::nn::Module& module, const CallTensors& arguments);
void after_call(const torch::nn::Module& module, const CallTensors& results);

template <class Module>
auto& module_of(Module& module) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::remove_const_t<Module>>) {
    return module;
  } else {
    return *module;  // a ModuleHolder or a pointer
  }
}

template <class T>
void add_tensors(CallTensors& list, T& value) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, at::Tensor>) {
    list.push_back(&value);
  } else {
    list.push_back(nullptr);
  }
}
template <class... T>
void add_tensors(CallTensors& list, std::tuple<T...>& values) {
  std::apply([&](auto&... value) { (add_tensors(list, value), ...); }, values);
}
inline void add_tensors(CallTensors& list, std::vector<at::Tensor>& values) {
  for (at::Tensor& value : values) list.push_back(&value);
}

}  // namespace detail

/// module.forward(args...), between what was asked of its inputs and of its outputs. `module` is a ModuleHolder, a
/// shared_ptr, or the module itself. Without such wishes it is module.forward(args...).
template <class Module, class... Arguments>
auto call(Module&& module, Arguments&&... arguments) {
  auto& impl = detail::module_of(module);
  std::tuple<std::decay_t<Arguments>...> given(std::forward<Arguments>(arguments)...);
  detail::CallTensors inputs;
  std::apply([&](auto&... value) { (detail::add_tensors(inputs, value), ...); }, given);
  detail::before_call(impl, inputs);
  auto result = std::apply([&](auto&... value) { return impl.forward(std::move(value)...); }, given);
  detail::CallTensors outputs;
  detail::add_tensors(outputs, result);
  detail::after_call(impl, outputs);
  return result;
}

}  // namespace sherd
