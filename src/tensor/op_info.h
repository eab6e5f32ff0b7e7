#pragma once
// What the dispatch needs to know of an operator, read once from its schema.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

#include "rules/op_call.h"

namespace sherd::detail {

enum class ArgumentKind : uint8_t { tensor, tensor_list, keyed, ignored };

struct ArgumentInfo {
  ArgumentKind kind = ArgumentKind::ignored;
  bool written = false;  // the operator changes it
  bool out = false;      // an out= argument: only written
};

/// Runs a call as other operators on DTensors; false, the stack untouched, where it should run as it is.
using Rewrite = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& op);

  std::string name;           // "aten::add_"
  std::string overload;       // "Tensor"
  std::string base_overload;  // of the functional operator with the same inputs: "dim" for max.dim_max
  std::vector<ArgumentInfo> arguments;
  std::vector<int> return_of;  // per return: the written argument that it is, or -1
  bool writes = false;         // in place or out=
  bool has_out = false;
  bool fills_lists = false;   // an out= is a list
  bool is_pointwise = false;  // torch's own tag
  bool is_random = false;
  int dropout = -1;  // the argument that says how much is dropped: with 0 nothing is random
  bool is_foreach = false;
  Rewrite rewrite = nullptr;
  std::optional<c10::DispatchKey> composite;  // the kernel that consists of other operators, where it may be used
  bool is_view = false;                       // a result shares memory with an argument that is not written
  bool reshapes = false;                      // view(self, size)
  bool reads_strides = false;                 // as_strided: its numbers mean the memory of the whole tensor
  bool is_inplace_view = false;               // t_(), squeeze_(): changes the shape of a tensor, not its data

  /// As people call it: "add_" for aten::add_, "mylib::ffn" for others.
  std::string short_name() const { return name.starts_with("aten::") ? name.substr(6) : name; }

  /// The call on the stack, as the rules see it. Shapes are the global ones.
  rules::OpCall call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) const;
};

}  // namespace sherd::detail
