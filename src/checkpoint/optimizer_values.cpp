#include "checkpoint/optimizer_values.h"

#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "comm/errors.h"

namespace sherd::detail {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const char* expected, const StateValue& value) {
  throw_value_error(ErrorText("set_optimizer_state_dict", "a value is of another kind")
                        .fact("expected", expected)
                        .fact("it is", value.kind())
                        .help("a state of the same optimizer"));
}

// Learning rates and numbers of steps may be tensors in Python.
std::optional<double> number_of(const StateValue& value) {
  if (const Tensor* tensor = value.tensor(); tensor != nullptr && tensor->defined() && tensor->numel() == 1) {
    return tensor->item().toDouble();
  }
  return value.number();
}

const std::vector<StateValue>* items_of(const StateValue& value) {
  if (const StateTuple* tuple = value.tuple()) return &tuple->items;
  return value.list();
}

StateValue written_item(const Tensor& tensor) { return tensor.defined() ? StateValue(tensor.detach()) : StateValue(); }

Tensor read_item(const StateValue& value) {
  if (value.is_none()) return {};
  if (const Tensor* tensor = value.tensor()) return tensor->detach().clone();
  const auto number = value.number();
  if (!number) refuse("a tensor", value);
  return at::scalar_tensor(*number);
}

const std::vector<StateValue>& read_items(const StateValue& value) {
  const auto* items = items_of(value);
  if (items == nullptr) refuse("a list of tensors", value);
  return *items;
}

}  // namespace

StateValue written(double value) { return value; }
StateValue written(int64_t value) { return value; }
StateValue written(bool value) { return value; }
StateValue written(const std::optional<int64_t>& value) { return value ? StateValue(*value) : StateValue(); }
StateValue written(const std::optional<std::string>& value) { return value ? StateValue(*value) : StateValue(); }
StateValue written(const std::tuple<double, double>& value) {
  return StateTuple{{std::get<0>(value), std::get<1>(value)}};
}
StateValue written(const Tensor& value) { return written_item(value); }
StateValue written(const std::deque<Tensor>& value) {
  StateList list;
  for (const Tensor& tensor : value) list.push_back(written_item(tensor));
  return list;
}
StateValue written(const std::optional<std::vector<Tensor>>& value) {
  if (!value) return {};
  StateList list;
  for (const Tensor& tensor : *value) list.push_back(written_item(tensor));
  return list;
}
StateValue written_steps(int64_t steps) { return at::scalar_tensor(static_cast<double>(steps), at::kFloat); }

void read(const StateValue& value, double& out) {
  const auto number = number_of(value);
  if (!number) refuse("a number", value);
  out = *number;
}
void read(const StateValue& value, int64_t& out) {
  const auto number = number_of(value);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 9e15) refuse("a whole number", value);
  out = static_cast<int64_t>(*number);
}
void read(const StateValue& value, bool& out) {
  if (value.boolean() == nullptr) refuse("a bool", value);
  out = *value.boolean();
}
void read(const StateValue& value, std::optional<int64_t>& out) {
  if (value.is_none()) {
    out.reset();
  } else {
    int64_t number = 0;
    read(value, number);
    out = number;
  }
}
void read(const StateValue& value, std::optional<std::string>& out) {
  if (!value.is_none() && value.text() == nullptr) refuse("a text or None", value);
  out = value.is_none() ? std::nullopt : std::optional(*value.text());
}
void read(const StateValue& value, std::tuple<double, double>& out) {
  const auto* items = items_of(value);
  if (items == nullptr || items->size() != 2) refuse("two numbers", value);
  std::tuple<double, double> pair;
  read((*items)[0], std::get<0>(pair));
  read((*items)[1], std::get<1>(pair));
  out = pair;
}
void read(const StateValue& value, Tensor& out) { out = read_item(value); }
void read(const StateValue& value, std::deque<Tensor>& out) {
  std::deque<Tensor> tensors;
  for (const StateValue& item : read_items(value)) tensors.push_back(read_item(item));
  out = std::move(tensors);
}
void read(const StateValue& value, std::optional<std::vector<Tensor>>& out) {
  if (value.is_none()) {
    out.reset();
    return;
  }
  std::vector<Tensor> tensors;
  for (const StateValue& item : read_items(value)) tensors.push_back(read_item(item));
  out = std::move(tensors);
}

}  // namespace sherd::detail
