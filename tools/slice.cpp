#include "slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <vector>

#include "sherd/error.h"

namespace sherd::tools {
namespace {

class SliceParser {
 public:
  SliceParser(const std::string& verb, const std::string& text, const Dims& size)
      : verb_(verb), text_(text), size_(size) {}

  Slice parse() {
    const std::vector<std::string> words = words_of();
    Slice slice{{Dims(size_.size(), 0), size_}, {}};
    std::vector<bool> left_out(size_.size(), false);
    const auto dots = std::find(words.begin(), words.end(), "...");
    const auto named = static_cast<size_t>(words.size()) - (dots == words.end() ? 0 : 1);
    if (named > size_.size()) refuse(fmt::format("{} places for a tensor of {} dims", named, size_.size()));
    size_t dim = 0;
    for (auto word = words.begin(); word != words.end(); ++word) {
      if (word == dots) {
        dim += size_.size() - named;
        continue;
      }
      if (*word == "...") refuse("... stands twice");
      left_out[dim] = read(*word, dim, slice.box);
      ++dim;
    }
    for (size_t d = 0; d < size_.size(); ++d) {
      if (!left_out[d]) slice.shown.push_back(slice.box.size[d]);
    }
    return slice;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(ErrorText(verb_, "this is no part of the tensor")
                                    .fact("slice", text_)
                                    .fact("size", to_string(size_))
                                    .fact("why", why)
                                    .help("'0:10, -1': ranges and places as in Python, without steps"));
  }

  std::vector<std::string> words_of() const {
    std::string text;
    for (const char c : text_) {
      if (c != ' ') text += c;
    }
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    std::vector<std::string> words;
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      words.push_back(text.substr(0, comma));
      text.erase(0, comma + 1);
    }
    return words;
  }

  std::optional<int64_t> number(const std::string& word) const {
    if (word.empty()) return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) refuse("\"" + word + "\" is no number");
    return value;
  }

  // Whether the dim is left out.
  bool read(const std::string& word, size_t dim, Box& box) const {
    const int64_t size = size_[dim];
    const size_t colon = word.find(':');
    if (colon == std::string::npos) {
      if (word.empty()) refuse("a place is empty");
      const int64_t given = *number(word);
      const int64_t place = given < 0 ? given + size : given;
      if (place < 0 || place >= size) refuse(fmt::format("{} is outside of dim {}", given, dim));
      box.offset[dim] = place;
      box.size[dim] = 1;
      return true;
    }
    if (word.find(':', colon + 1) != std::string::npos) refuse("steps are not supported");
    const auto end_of = [&](const std::string& text, int64_t otherwise) {
      const int64_t given = number(text).value_or(otherwise);
      return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
    };
    const int64_t begin = end_of(word.substr(0, colon), 0);
    const int64_t end = std::max(end_of(word.substr(colon + 1), size), begin);
    box.offset[dim] = begin;
    box.size[dim] = end - begin;
    return false;
  }

  const std::string& verb_;
  const std::string& text_;
  const Dims& size_;
};

}  // namespace

Slice parse_slice(const std::string& verb, const std::string& text, const Dims& size) {
  return SliceParser(verb, text, size).parse();
}

}  // namespace sherd::tools
