#pragma once
// The one shape of sherd's error texts:
//
//   operation: what is wrong
//     fact: value
//     other fact: value
//     help: a line to paste
//
// The rooms without libtorch throw std::invalid_argument or std::runtime_error with such a text; the others the c10
// classes (ValueError, NotImplementedError, DistBackendError).

#include <string>
#include <string_view>

namespace sherd {

class ErrorText {
 public:
  ErrorText(std::string_view operation, std::string_view problem);

  /// Adds a line "name: value". Lines of the value after the first are indented below it.
  ErrorText& fact(std::string_view name, std::string_view value);
  /// Adds the help line; call it last.
  ErrorText& help(std::string_view line);

  const std::string& str() const { return text_; }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};

}  // namespace sherd
