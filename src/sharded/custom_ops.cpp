#include "sharded/custom_ops.h"

#include <atomic>
#include <map>
#include <mutex>

#include "comm/errors.h"
#include "sharded/layout.h"

namespace sherd {
namespace {

using sharded::ShardedOp;
using torch::jit::Stack;

struct Table {
  std::mutex mutex;
  std::map<std::string, ShardedOp> by_op;
  std::map<std::pair<std::string, std::string>, ShardedOp> by_spec;  // spec's name, operator
  std::atomic<bool> any{false};
};
Table& table() {
  static auto* value = new Table;
  return *value;
}

// "aten::add.Tensor", as operators are written; throws for one that does not exist.
std::string checked_name(const char* operation, const std::string& op) {
  const size_t dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  if (c10::Dispatcher::singleton().findSchema({op.substr(0, dot), overload})) return op;
  detail::throw_value_error(ErrorText(operation, "there is no such operator")
                                .fact("operator", op)
                                .help("namespace, name and overload: \"aten::add.Tensor\", \"aten::relu\""));
}

const detail::ShardedLayout* first_layout(const c10::OperatorHandle& op, const Stack& stack) {
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    if (const auto* layout = detail::sharded_layout(stack[i].toTensor())) return layout;
  }
  return nullptr;
}

}  // namespace

bool detail::run_custom_op(const c10::OperatorHandle& op, Stack& stack) {
  if (!table().any.load(std::memory_order_acquire)) return false;
  const std::string name = c10::toString(op.operator_name());
  ShardedOp function;
  {
    const std::lock_guard lock(table().mutex);
    if (const auto found = table().by_op.find(name); found != table().by_op.end()) {
      function = found->second;
    } else if (const ShardedLayout* layout = first_layout(op, stack)) {
      const auto special = table().by_spec.find({layout->spec.kind().name(), name});
      if (special != table().by_spec.end()) function = special->second;
    }
  }
  if (!function) return false;
  const size_t count = op.schema().arguments().size();
  Stack call(stack.end() - static_cast<int64_t>(count), stack.end());
  function(call);
  if (call.size() != op.schema().returns().size()) {
    throw_value_error(ErrorText(name, "the custom operator leaves another number of results than this one has")
                          .fact("left", std::to_string(call.size()))
                          .fact("results", std::to_string(op.schema().returns().size()))
                          .help("stack = {result}"));
  }
  torch::jit::drop(stack, count);
  for (c10::IValue& value : call) stack.push_back(std::move(value));
  return true;
}

namespace sharded {

void custom_sharded_op(const std::string& op, ShardedOp function) {
  const std::string name = checked_name("custom_sharded_op", op);
  const std::lock_guard lock(table().mutex);
  table().by_op[name] = std::move(function);
  table().any.store(true, std::memory_order_release);
}

void custom_sharding_spec_op(const std::string& spec_name, const std::string& op, ShardedOp function) {
  const std::string name = checked_name("custom_sharding_spec_op", op);
  const std::lock_guard lock(table().mutex);
  table().by_spec[{spec_name, name}] = std::move(function);
  table().any.store(true, std::memory_order_release);
}

bool has_custom_sharding_spec_op(const std::string& spec_name, const std::string& op) {
  const std::lock_guard lock(table().mutex);
  return table().by_spec.contains({spec_name, op});
}

}  // namespace sharded
}  // namespace sherd
