#include "sherd/costs.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw std::invalid_argument(ErrorText("parse_costs", "these are no costs of communication")
                                  .fact("text", "\"" + std::string(text) + "\"")
                                  .help(to_string(CommCosts())));
}

double number_after(std::string_view name, std::string_view& rest, std::string_view whole) {
  if (!rest.starts_with(name)) refuse(whole);
  rest.remove_prefix(name.size());
  double value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) refuse(whole);
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return value;
}

}  // namespace

std::string to_string(const CommCosts& costs) {
  return fmt::format("call={:.3g},message={:.3g},byte={:.3g}", costs.call, costs.message, costs.byte);
}

CommCosts parse_costs(std::string_view text) {
  std::string_view rest = text;
  CommCosts costs;
  costs.call = number_after("call=", rest, text);
  costs.message = number_after(",message=", rest, text);
  costs.byte = number_after(",byte=", rest, text);
  if (!rest.empty()) refuse(text);
  return costs;
}

}  // namespace sherd
