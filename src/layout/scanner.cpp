#include "layout/scanner.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::detail {
namespace {

constexpr size_t kShown = 60;  // characters of the text quoted on either side of the place

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c) || c == '-' || c == '.'; }

std::string quoted_around(std::string_view text, size_t place) {
  const size_t begin = place > kShown ? place - kShown : 0;
  const size_t end = std::min(text.size(), place + kShown);
  std::string quoted = begin > 0 ? "...\"" : "\"";
  for (char c : text.substr(begin, end - begin)) {
    if (c >= ' ' && c <= '~')
      quoted.push_back(c);
    else
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return quoted + (end < text.size() ? "\"..." : "\"");
}

}  // namespace

size_t Scanner::place() {
  while (place_ < text_.size() && is_space(text_[place_])) ++place_;
  return place_;
}

bool Scanner::next_is_number() { return !at_end() && (is_digit(text_[place_]) || text_[place_] == '-'); }

bool Scanner::accept(char c) {
  if (!next_is(c)) return false;
  ++place_;
  return true;
}

void Scanner::expect(char c) {
  if (!accept(c)) fail(fmt::format("expected '{}'", c));
}

void Scanner::expect_end() {
  if (!at_end()) fail("expected the end of the text");
}

int64_t Scanner::number(std::string_view what) {
  const size_t begin = place();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
  if (error == std::errc::result_out_of_range) fail("the number does not fit in 64 bits");
  if (error != std::errc()) fail(fmt::format("expected {}", what));
  place_ = static_cast<size_t>(end - text_.data());
  return value;
}

std::string_view Scanner::name(std::string_view what) {
  const size_t begin = place();
  if (at_end() || !starts_name(text_[begin])) fail(fmt::format("expected {}", what));
  while (place_ < text_.size() && continues_name(text_[place_])) ++place_;
  return text_.substr(begin, place_ - begin);
}

void Scanner::fail_at(size_t place, std::string_view problem) const {
  throw std::invalid_argument(ErrorText(operation_, problem)
                                  .fact("text", quoted_around(text_, place))
                                  .fact("at", fmt::format("character {}", place))
                                  .help(help_));
}

bool is_name(std::string_view text) {
  if (text.empty() || !starts_name(text.front())) return false;
  for (char c : text)
    if (!continues_name(c)) return false;
  return true;
}

}  // namespace sherd::detail
