#include "checkpoint/full_state.h"

#include "checkpoint/placing.h"
#include "comm/errors.h"
#include "sherd/world.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Convert = std::function<Tensor(const Tensor&)>;

std::vector<StateValue> converted(const std::vector<StateValue>& values, const Convert& convert);

StateDict converted(const StateDict& dict, const Convert& convert);

StateValue converted(const StateValue& value, const Convert& convert) {
  if (const StateDict* dict = value.dict()) return converted(*dict, convert);
  if (const StateList* list = value.list()) return StateList(converted(*list, convert));
  if (const StateTuple* tuple = value.tuple()) return StateTuple{converted(tuple->items, convert)};
  if (const Tensor* tensor = value.tensor()) return convert(*tensor);
  return value;
}

std::vector<StateValue> converted(const std::vector<StateValue>& values, const Convert& convert) {
  std::vector<StateValue> result;
  result.reserve(values.size());
  for (const StateValue& value : values) result.push_back(converted(value, convert));
  return result;
}

// What this rank has no part of is not in its state.
StateDict converted(const StateDict& dict, const Convert& convert) {
  StateDict result;
  for (const auto& [key, value] : dict) {
    StateValue now = converted(value, convert);
    if (now.tensor() == nullptr || now.tensor()->defined()) result[key] = std::move(now);
  }
  return result;
}

}  // namespace

void check_options(const char* operation, const StateDictOptions& options) {
  if (!options.broadcast_from_rank0 || options.full_state_dict) return;
  throw_value_error(ErrorText(operation, "rank 0 can only share out whole tensors")
                        .fact("broadcast_from_rank0", "true")
                        .fact("full_state_dict", "false")
                        .help("{.full_state_dict = true, .broadcast_from_rank0 = true}"));
}

StateDict with_options(const StateDict& state, const StateDictOptions& options) {
  if (!options.full_state_dict) return options.cpu_offload ? converted(state, on_cpu) : state;
  if (!options.cpu_offload) return converted(state, whole_of);
  StateDict whole = converted(state, whole_on_rank0);
  const auto world = find_world();
  return !world || world->rank() == 0 ? whole : StateDict();
}

}  // namespace sherd::detail
