#include "storage/s3_xml.h"

#include <array>
#include <charconv>
#include <tuple>
#include <utility>

namespace sherd {
namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
    {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};

std::string unescape(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    size_t taken = 1;
    char c = text[0];
    if (c == '&') {
      for (const auto& [entity, meaning] : kEntities) {
        if (text.starts_with(entity)) std::tie(taken, c) = std::pair(entity.size(), meaning);
      }
      if (const size_t end = text.find(';'); text.starts_with("&#") && end != std::string_view::npos) {
        const bool hex = text.size() > 2 && text[2] == 'x';
        int code = 0;
        std::from_chars(text.data() + (hex ? 3 : 2), text.data() + end, code, hex ? 16 : 10);
        std::tie(taken, c) = std::pair(end + 1, static_cast<char>(code));
      }
    }
    plain += c;
    text.remove_prefix(taken);
  }
  return plain;
}

}  // namespace

std::vector<std::string_view> xml_elements(std::string_view text, std::string_view name) {
  const std::string open = "<" + std::string(name);
  const std::string close = "</" + std::string(name) + ">";
  std::vector<std::string_view> found;
  for (size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, at + 1)) {
    const size_t after = at + open.size();
    if (after >= text.size() || (text[after] != '>' && text[after] != ' ')) continue;  // a longer name, or empty
    const size_t begin = text.find('>', after) + 1;
    const size_t end = text.find(close, begin);
    if (begin == 0 || end == std::string_view::npos) break;
    found.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return found;
}

std::string xml_text(std::string_view text, std::string_view name) {
  const std::vector<std::string_view> found = xml_elements(text, name);
  return found.empty() ? "" : unescape(found.front());
}

std::string xml_escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    bool plain = true;
    for (const auto& [entity, meaning] : kEntities) {
      if (c == meaning) {
        escaped += entity;
        plain = false;
      }
    }
    if (plain) escaped += c;
  }
  return escaped;
}

}  // namespace sherd
