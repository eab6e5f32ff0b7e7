#pragma once
// Errors of ranks, caught as text.

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sherd/world.h"

namespace sherd::testing {

/// The text of the E that f throws; a test failure where it throws none.
template <class E>
std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of exception";
    return error.what();
  }
  ADD_FAILURE() << "no exception";
  return "";
}

/// The caller's own mistake.
inline std::string value_error(const std::function<void()>& f) { return error_text<c10::ValueError>(f); }
/// Something between ranks.
inline std::string comm_error(const std::function<void()>& f) { return error_text<c10::DistBackendError>(f); }

/// What each of n rank threads catches, "" where nothing. A rank that caught something ends.
inline std::vector<std::string> errors_of_ranks(int n, const std::function<void(World&)>& body,
                                                const WorldOptions& options = {}) {
  std::vector<std::string> errors(static_cast<size_t>(n));
  spawn(
      n,
      [&](World& world) {
        try {
          body(world);
        } catch (const c10::Error& error) {
          errors[static_cast<size_t>(world.rank())] = error.what_without_backtrace();
        }
      },
      options);
  return errors;
}

}  // namespace sherd::testing
