#pragma once
// Options and states of libtorch's optimizers as values of a state, kind by kind.

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sherd/state_dict.h"

namespace sherd::detail {

// `read` takes what Python may have instead: a whole number for a real one, a tensor of one element for a number, a
// list for a tuple. Throws c10::ValueError "<what>: expected ..." for anything else, naming the kind that it is.

StateValue written(double value);
StateValue written(int64_t value);
StateValue written(bool value);
StateValue written(const std::optional<int64_t>& value);
StateValue written(const std::optional<std::string>& value);
StateValue written(const std::tuple<double, double>& value);
StateValue written(const at::Tensor& value);
StateValue written(const std::deque<at::Tensor>& value);
StateValue written(const std::optional<std::vector<at::Tensor>>& value);

void read(const StateValue& value, double& out);
void read(const StateValue& value, int64_t& out);
void read(const StateValue& value, bool& out);
void read(const StateValue& value, std::optional<int64_t>& out);
void read(const StateValue& value, std::optional<std::string>& out);
void read(const StateValue& value, std::tuple<double, double>& out);
void read(const StateValue& value, at::Tensor& out);
void read(const StateValue& value, std::deque<at::Tensor>& out);
void read(const StateValue& value, std::optional<std::vector<at::Tensor>>& out);

/// A number of steps: a tensor in Python.
StateValue written_steps(int64_t steps);

}  // namespace sherd::detail
