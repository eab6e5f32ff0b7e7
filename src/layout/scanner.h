#pragma once
// Reads the project's notations from left to right. Every parser is written on it, so that every parse error has one
// form: the problem, the text, the place in it, and an example of what is right.

#include <cstdint>
#include <string>
#include <string_view>

namespace sherd::detail {

class Scanner {
 public:
  /// `operation` names the parser in errors; `help` shows what is right. The views must outlive the scanner.
  Scanner(std::string_view operation, std::string_view text, std::string_view help)
      : operation_(operation), text_(text), help_(help) {}

  // All of the functions below skip spaces first.

  /// The place of the next character that is no space; the text's length at its end.
  size_t place();
  bool at_end() { return place() == text_.size(); }
  bool next_is(char c) { return !at_end() && text_[place_] == c; }
  /// True when the next character can start a number: a digit or '-'.
  bool next_is_number();

  /// Steps over `c` if it is next.
  bool accept(char c);
  void expect(char c);
  void expect_end();
  /// Reads a whole number. `what` says in the error what is missing: "a size".
  int64_t number(std::string_view what);
  /// Reads the longest name (see is_name), or fails with "expected <what>".
  std::string_view name(std::string_view what);

  [[noreturn]] void fail(std::string_view problem) { fail_at(place(), problem); }
  [[noreturn]] void fail_at(size_t place, std::string_view problem) const;

 private:
  std::string_view operation_, text_, help_;
  size_t place_ = 0;
};

/// A letter or '_', then letters, digits, '_', '-' or '.'.
bool is_name(std::string_view text);

}  // namespace sherd::detail
