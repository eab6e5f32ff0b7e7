#pragma once
// Functions of Python that are told how far a work is.

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "bindings.h"
#include "sherd/checkpoint.h"
#include "sherd/progress.h"

namespace sherd::python {

/// Called with the interpreter's lock, by whichever thread works; what Python raises ends the work. The result may be
/// copied and destroyed without the lock. Nothing for nothing.
Progress told(const std::optional<py::function>& function);

/// The same in the form of save and load. What Python raises goes to all ranks, as a text.
std::function<void(const CheckpointProgress&)> told_all_ranks(const std::optional<py::function>& function);

/// Of seconds, as Python counts time. Nothing for those that never end; what is no time is no positive number.
inline std::optional<std::chrono::milliseconds> in_milliseconds(std::optional<double> seconds) {
  constexpr double kMost = 1e12;
  if (!seconds || *seconds > kMost) return std::nullopt;
  return std::chrono::milliseconds(*seconds > 0 ? std::llround(std::ceil(*seconds * 1000)) : 0);
}

}  // namespace sherd::python
