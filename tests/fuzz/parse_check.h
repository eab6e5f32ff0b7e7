#pragma once
// What every parser of the layout room owes to every text: a value that prints and parses back to itself, or
// std::invalid_argument. Used by the fuzzer and by the mutations that run with the unit tests.

#include <stdexcept>
#include <string>
#include <string_view>

#include "sherd/layout.h"

namespace sherd::testing {

struct RoundTripFailure : std::logic_error {
  using std::logic_error::logic_error;
};

/// True where `text` parses. Throws RoundTripFailure where the value does not survive printing.
template <class Parse, class Print>
bool round_trips(std::string_view text, Parse parse, Print print) {
  try {
    parse(text);
  } catch (const std::invalid_argument&) {
    return false;
  }
  const auto value = parse(text);
  const std::string printed = print(value);
  try {
    if (parse(printed) == value && print(parse(printed)) == printed) return true;
  } catch (const std::invalid_argument& error) {
    throw RoundTripFailure(printed + " does not parse: " + error.what());
  }
  throw RoundTripFailure(printed + " parses to another value");
}

/// How many of the parsers took the text.
inline int check_parsers(std::string_view text) {
  static const Mesh named({{"dp", 2}, {"tp", 4}}), numbered({{"", 2}, {"", 3}});
  const auto print = [](const auto& value) { return to_string(value); };
  int parsed = 0;
  parsed += round_trips(
      text, [](auto t) { return parse_placement(t); }, print);
  parsed += round_trips(
      text, [](auto t) { return parse_placements(t); }, print);
  parsed += round_trips(
      text, [](auto t) { return parse_mesh(t); }, print);
  parsed += round_trips(
      text, [](auto t) { return parse_box(t); }, print);
  parsed += round_trips(
      text, [](auto t) { return parse_dims(t); }, print);
  for (const Mesh* mesh : {&named, &numbered})
    parsed += round_trips(
        text, [&](auto t) { return parse_tensor(t, *mesh); },
        [&](const TensorText& tensor) { return to_string(tensor, *mesh); });
  return parsed;
}

}  // namespace sherd::testing
