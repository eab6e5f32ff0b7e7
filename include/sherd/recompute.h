#pragma once
// Activation checkpointing: memory for time. What a function computes on the way is not kept for backward but computed
// again there.

#include <ATen/core/Tensor.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace sherd {

namespace detail {

using TensorsFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

std::vector<at::Tensor> recompute_list(TensorsFunction fn, const std::vector<at::Tensor>& inputs);

template <class T>
struct RecomputedResult;  // an output that is no tensor would be forgotten

template <>
struct RecomputedResult<at::Tensor> {
  static std::vector<at::Tensor> to_list(at::Tensor result) { return {std::move(result)}; }
  static at::Tensor from_list(std::vector<at::Tensor> list) { return std::move(list[0]); }
};

template <>
struct RecomputedResult<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> to_list(std::vector<at::Tensor> result) { return result; }
  static std::vector<at::Tensor> from_list(std::vector<at::Tensor> list) { return list; }
};

template <class... Tensors>
requires(std::is_same_v<Tensors, at::Tensor>&&...) struct RecomputedResult<std::tuple<Tensors...>> {
  static std::vector<at::Tensor> to_list(std::tuple<Tensors...> result) {
    return std::apply([](auto&... each) { return std::vector<at::Tensor>{each...}; }, result);
  }
  static std::tuple<Tensors...> from_list(const std::vector<at::Tensor>& list) {
    return [&]<size_t... places>(std::index_sequence<places...>) { return std::tuple<Tensors...>{list[places]...}; }
    (std::index_sequence_for<Tensors...>());
  }
};

template <>
struct RecomputedResult<std::pair<at::Tensor, at::Tensor>> {
  static std::vector<at::Tensor> to_list(std::pair<at::Tensor, at::Tensor> result) {
    return {std::move(result.first), std::move(result.second)};
  }
  static std::pair<at::Tensor, at::Tensor> from_list(const std::vector<at::Tensor>& list) { return {list[0], list[1]}; }
};

template <class T>
void take_tensor(T& argument, std::vector<at::Tensor>& list) {
  if constexpr (std::is_same_v<T, at::Tensor>) list.push_back(std::exchange(argument, {}));
}

template <class T>
void put_tensor(T& argument, const std::vector<at::Tensor>& list, size_t& next) {
  if constexpr (std::is_same_v<T, at::Tensor>) argument = list[next++];
}

// A module is called by its forward: holders of modules whose forward is a template (Sequential) cannot be called.
template <class F, class... Arguments>
decltype(auto) call_or_forward(F& fn, Arguments&... arguments) {
  if constexpr (requires { fn->forward(arguments...); }) {
    return fn->forward(arguments...);
  } else {
    return fn(arguments...);
  }
}

}  // namespace detail

/// fn(inputs...), of which only the inputs are kept for backward; there fn runs again.
///
///   x = sherd::recompute(block, x, mask);            // a module
///   x = sherd::recompute([&](const at::Tensor& t) { return block->forward(t, cache); }, x);
///
/// fn may be a module or any callable, called with the arguments as they are given; it is copied, and so are arguments
/// that are no tensors. It returns a tensor, or a tuple, pair or vector of tensors. Tensors may be plain or DTensors,
/// with or without gradients; parameters that fn uses by itself get their gradients as always. Calls may be nested.
///
/// The second run draws the random numbers of the first (dropout), on DTensors and on plain tensors, under the autocast
/// settings of the first, and leaves the generators where they were. Plain tensors of rank threads share torch's one
/// CPU generator, whose numbers no thread can have again: in spawn(), draw through DTensors.
///
/// fn must compute the same when it runs again: it must not depend on what changed since. Backward throws
/// c10::ValueError in torch::autograd::grad() and in backward() with inputs, which would leave the gradients inside fn
/// in the wrong place, and where a gradient of the gradient is asked for (create_graph).
template <class F, class... Inputs>
auto recompute(F&& fn, Inputs&&... inputs) {
  using Result = std::decay_t<decltype(detail::call_or_forward(std::declval<std::decay_t<F>&>(),
                                                               std::declval<std::decay_t<Inputs>&>()...))>;
  using As = detail::RecomputedResult<Result>;
  std::tuple<std::decay_t<Inputs>...> arguments(std::forward<Inputs>(inputs)...);
  std::vector<at::Tensor> tensors;
  std::apply([&](auto&... each) { (detail::take_tensor(each, tensors), ...); }, arguments);
  auto call = [fn = std::decay_t<F>(std::forward<F>(fn)),
               arguments = std::move(arguments)](const std::vector<at::Tensor>& list) mutable {
    auto own = arguments;  // a second run finds what the first found
    size_t next = 0;
    std::apply([&](auto&... each) { (detail::put_tensor(each, list, next), ...); }, own);
    return As::to_list(std::apply([&](auto&... each) { return detail::call_or_forward(fn, each...); }, own));
  };
  return As::from_list(detail::recompute_list(std::move(call), tensors));
}

}  // namespace sherd
