#pragma once
// What must hold for every input of a format: it is read or refused with a sentence, and what was read is written so
// that it reads as the same. A fault ends the program.

#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sherd::testing {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline void must_hold(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// Runs `call`; nothing but a refusal may be thrown.
template <class Refusal = std::invalid_argument, class Call>
void read_or_refuse(const Call& call) {
  try {
    call();
  } catch (const Refusal& error) {
    must_hold(std::string_view(error.what()).find(": ") != std::string_view::npos, "a refusal without a sentence");
  }
}

}  // namespace sherd::testing
