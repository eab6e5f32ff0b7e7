#pragma once
// The state of torch's own generators, kept and put back: what plain tensors draw from.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace sherd::detail {

class TorchDraws {
 public:
  /// Of the CPU, and of the devices of these tensors.
  static TorchDraws now(const std::vector<at::Tensor>& tensors);

  /// Leaves those out that nobody has drawn from since. Rank threads share the CPU's: one that was not drawn from is
  /// not to be touched.
  void keep_changed();
  /// Puts the states back; returns those that were there.
  TorchDraws exchange() const;

 private:
  struct State {
    at::Generator generator;
    at::Tensor bytes;
  };
  std::vector<State> states_;
};

}  // namespace sherd::detail
