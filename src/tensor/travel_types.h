#pragma once
// The types in which values travel and are reduced, of those that a caller asks for.

#include <c10/core/ScalarType.h>

#include <optional>

namespace sherd::detail {

/// The type asked for where it is a matter of precision; that of the values where numbers would become others:
/// integers, and complex numbers in a type that has no imaginary parts.
inline c10::ScalarType travels_in(c10::ScalarType own, const std::optional<c10::ScalarType>& asked) {
  if (!asked) return own;
  const bool floats = c10::isFloatingType(own) && c10::isFloatingType(*asked);
  const bool complex = c10::isComplexType(own) && c10::isComplexType(*asked);
  return floats || complex ? *asked : own;
}

/// The same for reductions, in which integers may be averaged as floats.
inline c10::ScalarType reduces_in(c10::ScalarType own, const std::optional<c10::ScalarType>& asked) {
  return asked && c10::isComplexType(own) == c10::isComplexType(*asked) ? *asked : own;
}

}  // namespace sherd::detail
