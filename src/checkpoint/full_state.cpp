#include "checkpoint/full_state.h"

#include "checkpoint/placing.h"
#include "checkpoint/sharing.h"
#include "checkpoint/state_paths.h"
#include "comm/errors.h"
#include "sherd/world.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using Convert = std::function<Tensor(const StatePath&, const Tensor&)>;

// A state with other tensors.
class Converter {
 public:
  explicit Converter(const Convert& convert) : convert_(convert) {}

  // What this rank has no part of is not in its state.
  StateDict dict(const StateDict& from) {
    StateDict result;
    for (const auto& [key, item] : from) {
      path_.push_back(key);
      StateValue now = value(item);
      path_.pop_back();
      if (now.tensor() == nullptr || now.tensor()->defined()) result[key] = std::move(now);
    }
    return result;
  }

 private:
  StateValue value(const StateValue& from) {
    if (from.dict() != nullptr) return dict(*from.dict());
    if (from.list() != nullptr) return items(*from.list());
    if (from.tuple() != nullptr) return StateTuple{items(from.tuple()->items)};
    return from.tensor() != nullptr ? StateValue(convert_(path_, *from.tensor())) : from;
  }

  std::vector<StateValue> items(const std::vector<StateValue>& from) {
    std::vector<StateValue> result;
    for (size_t i = 0; i < from.size(); ++i) {
      path_.emplace_back(static_cast<int64_t>(i));
      result.push_back(value(from[i]));
      path_.pop_back();
    }
    return result;
  }

  const Convert& convert_;
  StatePath path_;
};

StateDict converted(const StateDict& state, const Convert& convert) { return Converter(convert).dict(state); }

StateDict collected(const StateDict& state) {
  std::vector<SharedTensor> tensors;
  converted(state, [&](const StatePath& path, const Tensor& tensor) {
    tensors.push_back({quoted(path), tensor});
    return tensor;
  });
  const std::map<std::string, Tensor> whole = collect(tensors);
  const auto world = find_world();
  if (world && world->rank() != 0) return {};
  return converted(state, [&](const StatePath& path, const Tensor&) { return whole.at(quoted(path)); });
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
  if (options.full_state_dict && options.cpu_offload) return collected(state);
  if (options.full_state_dict) {
    return converted(state, [](const StatePath&, const Tensor& tensor) { return whole_of(tensor); });
  }
  if (!options.cpu_offload) return state;
  return converted(state, [](const StatePath&, const Tensor& tensor) { return on_cpu(tensor); });
}

}  // namespace sherd::detail
