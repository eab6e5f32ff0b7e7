#pragma once
// Throwing c10's exceptions with sherd's texts, without c10's backtrace behind them.

#include <string>
#include <utility>

#include "sherd/error.h"

namespace sherd::detail {

[[noreturn]] void throw_value_error(const ErrorText& text);
/// c10::Error: what is RuntimeError in Python.
[[noreturn]] void throw_error(const ErrorText& text);
[[noreturn]] void throw_comm_error(const std::string& text);
/// c10::Error itself, a RuntimeError in Python: the call is right, but not now.
[[noreturn]] void throw_state_error(const ErrorText& text);

/// Runs f; a std::invalid_argument of the rooms without libtorch leaves as c10::ValueError with the same text.
template <class F>
decltype(auto) as_c10_errors(F&& f);

/// True for a text that has sherd's form already, help line included.
inline bool is_explained(const std::string& text) { return text.find("\n  help: ") != std::string::npos; }

/// The message of an exception, without a backtrace.
std::string message_of(const std::exception& error);
std::string message_of_current_exception();

}  // namespace sherd::detail

#include <stdexcept>

namespace sherd::detail {
[[noreturn]] void throw_value_error_text(std::string text);

template <class F>
decltype(auto) as_c10_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const std::invalid_argument& error) {
    throw_value_error_text(error.what());
  }
}
}  // namespace sherd::detail
