#pragma once
// Code on local tensors inside a program on DTensors.

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

/// One entry for each argument, or result, of a function: how the tensor is placed; nothing for what is passed as it
/// is.
using PlacementsOfEach = std::vector<std::optional<Placements>>;

struct LocalMapOptions {
  /// Move inputs to the placements that they should have, instead of refusing others.
  bool redistribute_inputs = false;
  /// What the gradient that the function's backward computes for each input means; an entry of nothing, or an empty
  /// list: as local_map finds it (below).
  PlacementsOfEach in_grad_placements = {};
};

namespace detail {

class LocalMapCall {
 public:
  LocalMapCall(const DeviceMesh& mesh, const PlacementsOfEach& in, const PlacementsOfEach& out,
               const LocalMapOptions& options);

  /// Throws where the function has another number of arguments than there are entries.
  void check_arguments(size_t count) const;
  void check_results(size_t count) const;
  /// This rank's part of the i-th argument.
  at::Tensor local_input(const at::Tensor& tensor, size_t i) const;
  /// Throws where placements are given for an argument that is no tensor.
  void check_other(size_t i) const;
  /// The DTensor of which `local` is this rank's part.
  at::Tensor global_result(const at::Tensor& local, size_t i) const;

 private:
  Placements grad_placements(size_t i) const;

  const DeviceMesh& mesh_;
  const PlacementsOfEach& in_;
  const PlacementsOfEach& out_;
  const LocalMapOptions& options_;
};

template <class T>
auto to_local_argument(const LocalMapCall& call, T&& argument, size_t i) {
  if constexpr (std::is_same_v<std::decay_t<T>, at::Tensor>) {
    return call.local_input(argument, i);
  } else {
    call.check_other(i);
    return std::decay_t<T>(std::forward<T>(argument));
  }
}

// A tuple in braces, so that the arguments are taken in their order: moving one is a collective call.
template <class F, size_t... places, class... Arguments>
auto call_with_locals(const LocalMapCall& call, F& fn, std::index_sequence<places...> /*places*/,
                      Arguments&&... arguments) {
  std::tuple<decltype(to_local_argument(call, std::forward<Arguments>(arguments), places))...> locals{
      to_local_argument(call, std::forward<Arguments>(arguments), places)...};
  return std::apply(fn, std::move(locals));
}

inline at::Tensor to_global_result(const LocalMapCall& call, const at::Tensor& result) {
  call.check_results(1);
  return call.global_result(result, 0);
}

inline std::vector<at::Tensor> to_global_result(const LocalMapCall& call, std::vector<at::Tensor> results) {
  call.check_results(results.size());
  for (size_t i = 0; i < results.size(); ++i) results[i] = call.global_result(results[i], i);
  return results;
}

template <class... Ts>
requires(std::is_same_v<Ts, at::Tensor>&&...) std::tuple<Ts...> to_global_result(const LocalMapCall& call,
                                                                                 std::tuple<Ts...> results) {
  call.check_results(sizeof...(Ts));
  size_t i = 0;
  std::apply([&](auto&... each) { ((each = call.global_result(each, i), ++i), ...); }, results);
  return results;
}

inline std::pair<at::Tensor, at::Tensor> to_global_result(const LocalMapCall& call,
                                                          std::pair<at::Tensor, at::Tensor> results) {
  call.check_results(2);
  return {call.global_result(results.first, 0), call.global_result(results.second, 1)};
}

}  // namespace detail

/// Makes a function of DTensors of one of local tensors. Each call hands `fn` this rank's parts of the inputs and takes
/// what it returns (a tensor, or a tuple, pair or vector of them) as this rank's parts of the results.
///
///   auto mlp = sherd::local_map(
///       [](const at::Tensor& x, const at::Tensor& w) { return my_kernel(x, w); }, mesh,
///       {{{Shard(0)}}, {{Replicate()}}}, {{{Shard(0)}}});
///   at::Tensor y = mlp(x, w);
///
/// `in` has an entry for each argument, `out` for each result: placements on `mesh`, or nothing for a plain tensor or
/// any other value, which is passed as it is. An input of other placements is an error that tells how to move it, or is
/// moved (redistribute_inputs). A plain tensor with placements counts as whole: fn gets its part. Parts of results may
/// have any sizes along the dims that are sharded: ranks tell each other.
///
/// It is differentiable where fn is. A gradient that fn computes for an input means what the input's placements say,
/// with one exception: along an axis where the input is replicated but another input or a result is not, ranks compute
/// different shares of it, and it is Partial. Where that is not so (fn talks to the other ranks by itself),
/// in_grad_placements says what it is.
///
/// Every rank of the mesh calls it. Throws c10::ValueError, alike on every rank before anything runs, for entries that
/// do not fit the arguments or the mesh.
template <class F>
auto local_map(F fn, DeviceMesh mesh, PlacementsOfEach in, PlacementsOfEach out, LocalMapOptions options = {}) {
  return [fn = std::move(fn), mesh = std::move(mesh), in = std::move(in), out = std::move(out),
          options = std::move(options)](auto&&... arguments) mutable {
    const detail::LocalMapCall call(mesh, in, out, options);
    call.check_arguments(sizeof...(arguments));
    return detail::to_global_result(
        call, detail::call_with_locals(call, fn, std::index_sequence_for<decltype(arguments)...>(),
                                       std::forward<decltype(arguments)>(arguments)...));
  };
}

}  // namespace sherd
