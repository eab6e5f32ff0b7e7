#pragma once
// What the parsers of XLA's shardings owe to every text and to all bytes: a value that prints and parses back to
// itself, or std::invalid_argument.

#include <stdexcept>
#include <string>
#include <string_view>

#include "sherd/xla_sharding.h"

namespace sherd::testing {

inline void check_sharding_round_trips(const XlaSharding& sharding) {
  if (parse_xla_sharding(to_string(sharding)) != sharding)
    throw std::logic_error(to_string(sharding) + " parses to another value");
  if (parse_op_sharding(to_op_sharding(sharding)) != sharding)
    throw std::logic_error("the bytes of " + to_string(sharding) + " parse to another value");
}

/// True where `input` parses, as text or as bytes.
inline bool check_xla_parsers(std::string_view input) {
  bool parsed = false;
  for (const auto parse : {parse_xla_sharding, parse_op_sharding}) {
    XlaSharding sharding;
    try {
      sharding = parse(input);
    } catch (const std::invalid_argument&) {
      continue;
    }
    parsed = true;
    check_sharding_round_trips(sharding);
    try {
      placements_of(sharding, Mesh({{"", 2}, {"", 4}}), {6, 8});
    } catch (const std::invalid_argument&) {  // it does not fit this mesh
    }
  }
  return parsed;
}

}  // namespace sherd::testing
