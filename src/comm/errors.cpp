#include "comm/errors.h"

#include <c10/util/Exception.h>

namespace sherd::detail {

void throw_value_error(const ErrorText& text) { throw c10::ValueError(text.str()); }

void throw_value_error_text(std::string text) { throw c10::ValueError(std::move(text)); }

void throw_error(const ErrorText& text) { throw c10::Error(text.str(), nullptr); }

void throw_comm_error(const std::string& text) { throw c10::DistBackendError(text); }

void throw_state_error(const ErrorText& text) { throw c10::Error(text.str()); }

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

std::string message_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return message_of(error);
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace sherd::detail
