#include "rules/op_call.h"

namespace sherd::rules {

const PlainArgument* OpCall::find(std::string_view name) const {
  for (const PlainArgument& argument : plain) {
    if (argument.name == name) return &argument;
  }
  return nullptr;
}

int64_t OpCall::integer(std::string_view name, int64_t otherwise) const {
  const PlainArgument* argument = find(name);
  if (argument == nullptr) return otherwise;
  if (const auto* flag = std::get_if<bool>(&argument->value)) return *flag ? 1 : 0;
  if (const auto* number = std::get_if<int64_t>(&argument->value)) return *number;
  if (const auto* real = std::get_if<double>(&argument->value)) return static_cast<int64_t>(*real);
  return otherwise;
}

std::optional<Dims> OpCall::list(std::string_view name) const {
  const PlainArgument* argument = find(name);
  if (argument == nullptr) return std::nullopt;
  if (const auto* dims = std::get_if<Dims>(&argument->value)) return *dims;
  if (const auto* number = std::get_if<int64_t>(&argument->value)) return Dims{*number};
  return std::nullopt;
}

}  // namespace sherd::rules
