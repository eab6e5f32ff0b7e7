#include "told.h"

#include <memory>
#include <stdexcept>
#include <utility>

namespace sherd::python {

Progress told(const std::optional<py::function>& function) {
  if (!function) return {};
  const auto let_go = [](py::function* last) {
    // The memory of the last save outlives the interpreter: then there is nothing left to let go of.
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    delete last;
  };
  return [function = std::shared_ptr<py::function>(new py::function(*function), let_go)](int64_t done, int64_t total) {
    const py::gil_scoped_acquire gil;
    (*function)(done, total);
  };
}

std::function<void(const CheckpointProgress&)> told_all_ranks(const std::optional<py::function>& function) {
  Progress progress = told(function);
  if (!progress) return {};
  return [progress = std::move(progress)](const CheckpointProgress& now) {
    try {
      progress(now.bytes, now.total);
    } catch (const py::error_already_set& error) {
      const py::gil_scoped_acquire gil;
      throw std::runtime_error(message_of(error));
    }
  };
}

}  // namespace sherd::python
