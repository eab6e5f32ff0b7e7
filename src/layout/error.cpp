#include "sherd/error.h"

namespace sherd {

ErrorText::ErrorText(std::string_view operation, std::string_view problem) {
  text_.append(operation).append(": ").append(problem);
}

ErrorText& ErrorText::fact(std::string_view name, std::string_view value) {
  text_.append("\n  ").append(name).append(": ");
  for (char c : value) {
    text_.push_back(c);
    if (c == '\n') text_.append("    ");
  }
  return *this;
}

ErrorText& ErrorText::help(std::string_view line) { return fact("help", line); }

}  // namespace sherd
